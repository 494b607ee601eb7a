#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/driver_api.hpp"

namespace jitgemm::test {

/// Stream capture and CUDA graphs without a GPU: nodes with what comes before them and what they do, and user objects,
/// which end on a thread of their own, as those of a driver do. Thread-safe.
struct FakeGraphs {
  struct Node {
    std::vector<CUgraphNode> before;
    std::function<CUresult()> run;
    std::optional<CUDA_KERNEL_NODE_PARAMS> kernel = {};
    CUgraphEdgeData edge = {};  ///< from each of those before
  };
  struct UserObject {
    void* value;
    CUhostFn end;
    std::atomic<unsigned> references;
  };
  struct Graph {
    int users = 1;  ///< itself and its instances
    std::uint64_t capture = 0;
    std::vector<std::unique_ptr<Node>> nodes;
    std::vector<std::pair<UserObject*, unsigned>> objects;
  };
  struct Capture {
    Graph* graph;
    std::vector<CUgraphNode> last;
    CUgraphEdgeData edge = {};  ///< from them to what is captured next
  };

  static inline std::recursive_mutex mutex;
  static inline std::map<CUstream, Capture> captures;
  static inline std::atomic<std::uint64_t> last_capture = 0;
  static inline std::atomic<int> objects_alive = 0;
  static inline std::set<UserObject*> objects;  // alive
  static inline std::vector<Graph*> handles;    // of graphs and instances that the library's own capture made
  static inline std::atomic<CUresult> retain_result = CUDA_SUCCESS, update_result = CUDA_SUCCESS;

  static void reset() {
    captures.clear();
    const std::lock_guard lock(mutex);
    for (UserObject* object : objects) {  // whose release was made to fail
      object->end(object->value);
      delete object;
    }
    objects.clear();
    for (Graph* graph : handles) destroy(reinterpret_cast<CUgraph>(graph));
    handles.clear();
    objects_alive = 0;
    retain_result = update_result = CUDA_SUCCESS;
  }

  static Graph* of(CUgraph graph) { return reinterpret_cast<Graph*>(graph); }

  static void begin(CUstream stream) {
    const std::lock_guard lock(mutex);
    auto* const graph = new Graph;
    graph->capture = ++last_capture;
    captures[stream] = {graph, {}};
  }
  /// What is captured on `stream` next comes after all that `other` has captured, as after cuStreamWaitEvent.
  static void join(CUstream stream, CUstream other) {
    const std::lock_guard lock(mutex);
    const Capture of_other = captures.at(other);
    Capture& own = captures.try_emplace(stream, Capture{of_other.graph, {}}).first->second;
    own.last.insert(own.last.end(), of_other.last.begin(), of_other.last.end());
  }
  /// As cuStreamUpdateCaptureDependencies.
  static void set_last(CUstream stream, std::vector<CUgraphNode> nodes) {
    const std::lock_guard lock(mutex);
    captures.at(stream).last = std::move(nodes);
  }
  /// Of the graph that is captured on the stream.
  static const Node& last_node(CUstream stream) {
    const std::lock_guard lock(mutex);
    return *captures.at(stream).graph->nodes.back();
  }
  static CUgraph end(CUstream stream) {
    const std::lock_guard lock(mutex);
    Graph* const graph = captures.at(stream).graph;
    std::erase_if(captures, [&](const auto& entry) { return entry.second.graph == graph; });
    return reinterpret_cast<CUgraph>(graph);
  }
  static CUresult launch(CUgraph graph) {
    for (const auto& node : of(graph)->nodes)
      if (const CUresult result = node->run(); result != CUDA_SUCCESS) return result;
    return CUDA_SUCCESS;
  }
  static CUgraph clone(CUgraph graph) {
    auto* const copy = new Graph;
    for (const auto& [object, count] : of(graph)->objects) {
      object->references += count;
      copy->objects.emplace_back(object, count);
    }
    return reinterpret_cast<CUgraph>(copy);
  }
  static void destroy(CUgraph graph) {
    if (--of(graph)->users > 0) return;
    for (const auto& [object, count] : of(graph)->objects) release(object, count);
    delete of(graph);
  }

  /// Whether the stream is being captured. If so, `run` becomes a node, and happens with each launch of the graph;
  /// `launch` is a kernel's.
  static bool take(CUstream stream, std::function<CUresult()> run, const CUlaunchConfig* launch = nullptr,
                   CUfunction function = nullptr) {
    const std::lock_guard lock(mutex);
    const auto found = captures.find(stream);
    if (found == captures.end()) return false;
    Capture& capture = found->second;
    Node node{capture.last, std::move(run)};
    node.edge = std::exchange(capture.edge, {});
    if (launch) {
      CUDA_KERNEL_NODE_PARAMS& kernel = node.kernel.emplace();
      kernel.func = function;
      kernel.gridDimX = launch->gridDimX;
      kernel.gridDimY = launch->gridDimY;
      kernel.gridDimZ = launch->gridDimZ;
      kernel.blockDimX = launch->blockDimX;
      kernel.blockDimY = launch->blockDimY;
      kernel.blockDimZ = launch->blockDimZ;
      kernel.sharedMemBytes = launch->sharedMemBytes;
      for (unsigned i = 0; i < launch->numAttrs; ++i) {
        if (launch->attrs[i].id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) continue;
        node.edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
        node.edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
      }
    }
    capture.graph->nodes.push_back(std::make_unique<Node>(std::move(node)));
    capture.last = {reinterpret_cast<CUgraphNode>(capture.graph->nodes.back().get())};
    return true;
  }
  static bool captures_on(CUstream stream) {
    const std::lock_guard lock(mutex);
    return captures.contains(stream);
  }

  static void add_to(cuda::DriverApi& api) {
    api.stream_get_capture_info_v2 = capture_info;
    api.stream_get_capture_info_v3 = [](CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                        const CUgraphNode** nodes, const CUgraphEdgeData** edges, std::size_t* count) {
      *edges = nullptr;
      return capture_info(stream, status, id, graph, nodes, count);
    };
    api.graph_node_get_dependencies = dependencies;
    api.graph_node_get_dependencies_v2 = [](CUgraphNode node, CUgraphNode* before, CUgraphEdgeData* edges,
                                            std::size_t* count) {
      if (before && !edges) return CUDA_ERROR_LOSSY_QUERY;  // ours are programmatic
      return dependencies(node, before, count);
    };
    api.stream_update_capture_dependencies_v2 = [](CUstream stream, CUgraphNode* nodes, const CUgraphEdgeData* edges,
                                                   std::size_t count, unsigned flags) {
      if (flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES || count != 1) return CUDA_ERROR_INVALID_VALUE;
      if (update_result != CUDA_SUCCESS) return update_result.load();
      const std::lock_guard lock(mutex);
      captures.at(stream).last = {*nodes};
      captures.at(stream).edge = *edges;
      return CUDA_SUCCESS;
    };
    api.stream_begin_capture = [](CUstream stream, CUstreamCaptureMode) { return begin(stream), CUDA_SUCCESS; };
    api.stream_end_capture = [](CUstream stream, CUgraph* graph) {
      *graph = end(stream);
      return keep(of(*graph));
    };
    api.graph_instantiate = [](CUgraphExec* instance, CUgraph graph, unsigned long long) {
      ++of(graph)->users;
      *instance = reinterpret_cast<CUgraphExec>(graph);
      return keep(of(graph));
    };
    api.graph_launch = [](CUgraphExec instance, CUstream) { return launch(reinterpret_cast<CUgraph>(instance)); };
    api.graph_destroy = [](CUgraph graph) { return drop(of(graph)); };
    api.graph_exec_destroy = [](CUgraphExec instance) { return drop(reinterpret_cast<Graph*>(instance)); };
    api.graph_node_get_type = [](CUgraphNode node, CUgraphNodeType* type) {
      const std::lock_guard lock(mutex);
      *type = reinterpret_cast<Node*>(node)->kernel ? CU_GRAPH_NODE_TYPE_KERNEL : CU_GRAPH_NODE_TYPE_MEMCPY;
      return CUDA_SUCCESS;
    };
    api.graph_kernel_node_get_params = [](CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* kernel) {
      const std::lock_guard lock(mutex);
      const auto& its = reinterpret_cast<Node*>(node)->kernel;
      if (!its) return CUDA_ERROR_INVALID_VALUE;
      *kernel = *its;
      return CUDA_SUCCESS;
    };
    api.user_object_create = [](CUuserObject* object, void* value, CUhostFn end, unsigned references, unsigned) {
      auto* const made = new UserObject{value, end, {references}};
      *object = reinterpret_cast<CUuserObject>(made);
      ++objects_alive;
      const std::lock_guard lock(mutex);
      objects.insert(made);
      return CUDA_SUCCESS;
    };
    api.user_object_release = [](CUuserObject object, unsigned count) {
      release(reinterpret_cast<UserObject*>(object), count);
      return CUDA_SUCCESS;
    };
    api.graph_retain_user_object = [](CUgraph graph, CUuserObject object, unsigned count, unsigned) {
      if (retain_result != CUDA_SUCCESS) return retain_result.load();
      of(graph)->objects.emplace_back(reinterpret_cast<UserObject*>(object), count);  // moved: no reference more
      return CUDA_SUCCESS;
    };
  }

 private:
  static CUresult keep(Graph* graph) {
    const std::lock_guard lock(mutex);
    handles.push_back(graph);
    return CUDA_SUCCESS;
  }
  static CUresult drop(Graph* graph) {
    const std::lock_guard lock(mutex);
    const auto found = std::find(handles.begin(), handles.end(), graph);
    if (found == handles.end()) return CUDA_ERROR_INVALID_VALUE;
    handles.erase(found);
    destroy(reinterpret_cast<CUgraph>(graph));
    return CUDA_SUCCESS;
  }
  static CUresult capture_info(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                               const CUgraphNode** nodes, std::size_t* count) {
    const std::lock_guard lock(mutex);
    const auto found = captures.find(stream);
    *status = found == captures.end() ? CU_STREAM_CAPTURE_STATUS_NONE : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (found == captures.end()) return CUDA_SUCCESS;
    *id = found->second.graph->capture;
    *graph = reinterpret_cast<CUgraph>(found->second.graph);
    *nodes = found->second.last.data();
    *count = found->second.last.size();
    return CUDA_SUCCESS;
  }
  static CUresult dependencies(CUgraphNode node, CUgraphNode* before, std::size_t* count) {
    const std::lock_guard lock(mutex);
    const auto& all = reinterpret_cast<Node*>(node)->before;
    for (std::size_t i = 0; before && i < std::min(*count, all.size()); ++i) before[i] = all[i];
    *count = all.size();
    return CUDA_SUCCESS;
  }
  static void release(UserObject* object, unsigned count) {
    if ((object->references -= count) > 0) return;
    std::thread([object] { object->end(object->value); }).join();
    {
      const std::lock_guard lock(mutex);
      objects.erase(object);
    }
    delete object;
    --objects_alive;
  }
};

}  // namespace jitgemm::test
