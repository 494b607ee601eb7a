#include "measure/launch_graph.hpp"

#include <cuda.h>
#include <dlfcn.h>

#include <string>

#include "backend/cuda/driver_api.hpp"
#include "jitgemm/error.hpp"

namespace jitgemm::cli {
namespace {

/// The driver's graph functions; the library needs none of them.
struct GraphApi {
  decltype(&cuCtxSetCurrent) ctx_set_current = nullptr;
  CUresult (*begin_capture)(CUstream, CUstreamCaptureMode) = nullptr;
  decltype(&cuStreamEndCapture) end_capture = nullptr;
  CUresult (*instantiate)(CUgraphExec*, CUgraph, unsigned long long flags) = nullptr;
  decltype(&cuGraphLaunch) launch = nullptr;
  decltype(&cuGraphDestroy) destroy = nullptr;
  decltype(&cuGraphExecDestroy) exec_destroy = nullptr;
};

GraphApi load_graph_api() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Error(ErrorCode::no_device, "no CUDA driver: use --device emulator");
  const auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function) throw Error(ErrorCode::no_device, std::string("the CUDA driver has no ") + name + ": update it");
  };
  GraphApi api;
  bind(api.ctx_set_current, "cuCtxSetCurrent");
  bind(api.begin_capture, "cuStreamBeginCapture_v2");
  bind(api.end_capture, "cuStreamEndCapture");
  bind(api.instantiate, "cuGraphInstantiateWithFlags");
  bind(api.launch, "cuGraphLaunch");
  bind(api.destroy, "cuGraphDestroy");
  bind(api.exec_destroy, "cuGraphExecDestroy");
  return api;
}

const GraphApi& graph_api() {
  static const GraphApi api = load_graph_api();
  return api;
}

void check(CUresult result, const char* call) {
  cuda::check(cuda::driver(), result, ErrorCode::launch_failed, call, "run again with --no-peers to rule cuBLAS out");
}

}  // namespace

void make_cuda_current(int gpu) {
  CUcontext context = nullptr;
  check(cuda::driver().ctx_get_current(&context), "cuCtxGetCurrent");
  if (context) return;
  CUdevice device = 0;
  check(cuda::driver().device_get(&device, gpu), "cuDeviceGet");
  check(cuda::driver().device_primary_ctx_retain(&context, device), "cuDevicePrimaryCtxRetain");
  check(graph_api().ctx_set_current(context), "cuCtxSetCurrent");
}

Context open_context(const ContextOptions& options) {
  if (options.device == Device::cuda) make_cuda_current();
  return Context(options);
}

struct LaunchGraph::Impl {
  Stream stream;
  CUgraphExec graph = nullptr;

  void end_capture() {
    const GraphApi& api = graph_api();
    CUgraph captured = nullptr;
    check(api.end_capture(stream, &captured), "cuStreamEndCapture");
    const CUresult instantiated = api.instantiate(&graph, captured, 0);
    api.destroy(captured);
    check(instantiated, "cuGraphInstantiate");
  }
};

void begin_shared_capture(Stream stream) {
  check(graph_api().begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
}

LaunchGraph::LaunchGraph(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

LaunchGraph LaunchGraph::end_shared_capture(Stream stream) {
  make_cuda_current();  // which graphs need, unlike streams
  LaunchGraph graph(std::make_unique<Impl>(Impl{.stream = stream}));
  graph.impl_->end_capture();
  return graph;
}

LaunchGraph::LaunchGraph(Stream stream, const std::function<void()>& enqueue)
    : impl_(std::make_unique<Impl>(Impl{.stream = stream})) {
  const GraphApi& api = graph_api();
  check(api.begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
  try {
    enqueue();
  } catch (...) {
    CUgraph graph = nullptr;
    api.end_capture(stream, &graph);
    if (graph) api.destroy(graph);
    throw;
  }
  impl_->end_capture();
}

LaunchGraph::LaunchGraph(LaunchGraph&&) noexcept = default;

LaunchGraph::~LaunchGraph() {
  if (impl_ && impl_->graph) graph_api().exec_destroy(impl_->graph);
}

void LaunchGraph::launch() { check(graph_api().launch(impl_->graph, impl_->stream), "cuGraphLaunch"); }

}  // namespace jitgemm::cli
