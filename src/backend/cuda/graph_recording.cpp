#include "backend/cuda/graph_recording.hpp"

namespace jitgemm::cuda {
namespace {

constexpr const char* way_out = "tune outside of other captures, or use Tuning::off";

/// A stream of its own, non-blocking, so that no capture of others is disturbed by this one.
class CapturingStream {
 public:
  explicit CapturingStream(const DeviceContext& context) : context_(context) {
    const DriverApi& api = context.api;
    check(api, api.stream_create(&stream_, CU_STREAM_NON_BLOCKING), ErrorCode::launch_failed, "cuStreamCreate",
          way_out);
  }
  ~CapturingStream() {
    context_.attempt("cuStreamDestroy", [&] { return context_.api.stream_destroy(stream_); });
  }
  CapturingStream(const CapturingStream&) = delete;
  CapturingStream& operator=(const CapturingStream&) = delete;

  operator CUstream() const { return stream_; }

 private:
  const DeviceContext& context_;
  CUstream stream_ = nullptr;
};

/// Destroyed when it has been instantiated.
class CapturedGraph {
 public:
  CapturedGraph(const DeviceContext& context, CUstream stream, const std::function<void(Stream)>& enqueue)
      : context_(context) {
    const DriverApi& api = context.api;
    check(api, api.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), ErrorCode::launch_failed,
          "cuStreamBeginCapture", way_out);
    try {
      enqueue(stream);
    } catch (...) {
      api.stream_end_capture(stream, &graph_);
      destroy();
      throw;
    }
    check(api, api.stream_end_capture(stream, &graph_), ErrorCode::launch_failed, "cuStreamEndCapture", way_out);
  }
  ~CapturedGraph() { destroy(); }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  CUgraph get() const { return graph_; }

 private:
  void destroy() noexcept {
    if (graph_) context_.attempt("cuGraphDestroy", [&] { return context_.api.graph_destroy(graph_); });
  }

  const DeviceContext& context_;
  CUgraph graph_ = nullptr;
};

}  // namespace

GraphRecording::GraphRecording(const DeviceContext& context, const std::function<void(Stream)>& enqueue)
    : context_(context) {
  const CurrentContext current(context);
  const Relaxed relaxed(context);
  const CapturingStream stream(context);
  const CapturedGraph captured(context, stream, enqueue);
  check(context.api, context.api.graph_instantiate(&graph_, captured.get(), 0), ErrorCode::launch_failed,
        "cuGraphInstantiate", way_out);
}

GraphRecording::~GraphRecording() {
  context_.attempt("cuGraphExecDestroy", [&] { return context_.api.graph_exec_destroy(graph_); });
}

void GraphRecording::replay(Stream stream) {
  const CurrentContext current(context_);
  check(context_.api, context_.api.graph_launch(graph_, stream), ErrorCode::launch_failed, "cuGraphLaunch",
        "an earlier kernel or copy on this CUDA context may have failed: run under compute-sanitizer to find it");
}

}  // namespace jitgemm::cuda
