#include "backend/cuda/graph_capture.hpp"

#include <algorithm>
#include <set>

namespace jitgemm::cuda {
namespace {

// A chain of a model's kernels between two calls is shorter; a path that is not found costs one workspace more.
constexpr std::size_t most_visited = 4096;

constexpr const char* way_out = "end this capture and begin another, or pass Operands::workspace";

CUgraph graph_of(const CapturePoint& point) { return static_cast<CUgraph>(point.graph); }

/// Edges may be programmatic ones: asked for without their data, the driver answers CUDA_ERROR_LOSSY_QUERY.
std::vector<CUgraphNode> nodes_before(const DriverApi& api, CUgraphNode node) {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> edges;
  const auto query = [&](CUgraphNode* to, CUgraphEdgeData* edge_data, std::size_t* count) {
    const CUresult result = api.graph_node_get_dependencies_v2
                                ? api.graph_node_get_dependencies_v2(node, to, edge_data, count)
                                : api.graph_node_get_dependencies(node, to, count);
    check(api, result, ErrorCode::not_capturable, "cuGraphNodeGetDependencies", way_out);
  };
  std::size_t count = 0;
  query(nullptr, nullptr, &count);
  nodes.resize(count);
  edges.resize(count);
  if (count > 0) query(nodes.data(), edges.data(), &count);
  nodes.resize(std::min(count, nodes.size()));
  return nodes;
}

}  // namespace

CapturePoint capture_point(const DriverApi& api, Stream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  const CUresult result = api.stream_get_capture_info_v3
                              ? api.stream_get_capture_info_v3(stream, &status, &id, &graph, &nodes, &edges, &count)
                              : api.stream_get_capture_info_v2(stream, &status, &id, &graph, &nodes, &count);
  check(api, result, ErrorCode::not_capturable, "cuStreamGetCaptureInfo", way_out);
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    throw Error(ErrorCode::not_capturable, std::string("the capture of the stream is no longer valid; ") + way_out);
  }
  return {id, graph, {nodes, nodes + count}};
}

bool comes_after(const DriverApi& api, const CapturePoint& point, void* node) {
  // Breadth first, as it is most often the node before.
  std::vector<CUgraphNode> queue;
  for (void* const last : point.nodes) queue.push_back(static_cast<CUgraphNode>(last));
  std::set<CUgraphNode> seen(queue.begin(), queue.end());
  for (std::size_t i = 0; i < queue.size() && i < most_visited; ++i) {
    if (queue[i] == node) return true;
    for (const CUgraphNode before : nodes_before(api, queue[i]))
      if (seen.insert(before).second) queue.push_back(before);
  }
  return false;
}

void hold_with_graph(const DriverApi& api, const CapturePoint& point, std::shared_ptr<const void> held) {
  using Held = std::shared_ptr<const void>;
  auto payload = std::make_unique<Held>(std::move(held));
  CUuserObject object = nullptr;
  check(api,
        api.user_object_create(
            &object, payload.get(), [](void* ended) { delete static_cast<Held*>(ended); }, 1,
            CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
        ErrorCode::not_capturable, "cuUserObjectCreate", way_out);
  (void)payload.release();  // the object's now
  if (const CUresult result = api.graph_retain_user_object(graph_of(point), object, 1, CU_GRAPH_USER_OBJECT_MOVE);
      result != CUDA_SUCCESS) {
    api.user_object_release(object, 1);
    check(api, result, ErrorCode::not_capturable, "cuGraphRetainUserObject", way_out);
  }
}

}  // namespace jitgemm::cuda
