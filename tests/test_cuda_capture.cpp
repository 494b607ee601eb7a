// gemm() in CUDA graphs on a real GPU.
#include <thread>

#include "catch.hpp"
#include "cuda_fixtures.hpp"
#include "errors.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

TEST_CASE("a captured gemm replays, with split tiles too", "[gpu][context]") {
  if (cuda_devices().empty()) SKIP(no_gpu);
  const TemporaryDirectory cache;
  const auto backend = make_cuda_backend();
  const GraphApi api;
  Context context(options_in(cache));
  const OwnStream stream(*backend);
  const Problem problem{.m = 256, .n = 256, .k = 2048};
  DeviceOperands device(*backend, problem), second(*backend, problem, 2);
  for (KernelConfig config : both_main_loops(*backend)) {
    config = with_schedule(config, Schedule::stream_k, 1, 7);
    CUcontext primary = nullptr, before = nullptr;
    require(cuda::driver().ctx_get_current(&before));
    require(cuda::driver().device_primary_ctx_retain(&primary, 0));
    require(cuda::driver().ctx_push_current(primary));
    // The kernel is not loaded yet: loading is legal in the relaxed mode, or the Error says what to do.
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    require(api.begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    bool captured = true;
    try {
      context.gemm(problem, device.operands, stream, config);
      context.gemm(problem, second.operands, stream, config);
    } catch (const Error& error) {
      captured = false;
      CHECK(error.code() == ErrorCode::not_capturable);
      CHECK_THAT(error.what(), Catch::Matchers::ContainsSubstring("before the capture"));
    }
    require(api.end_capture(stream, &graph));
    if (!captured) {
      require(api.graph_destroy(graph));
      context.gemm(problem, device.operands, stream, config);
      backend->synchronize(stream);
      require(api.begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
      context.gemm(problem, device.operands, stream, config);
      context.gemm(problem, second.operands, stream, config);
      require(api.end_capture(stream, &graph));
    }
    require(api.instantiate(&exec, graph, 0));
    std::string first_bits;
    for (int replay = 0; replay < 5; ++replay) {
      device.poison();
      second.poison();
      require(api.launch(exec, stream));
      backend->synchronize(stream);
      CHECK(device.violation(config.main_loop) == "");
      CHECK(second.violation(config.main_loop) == "");
      if (replay == 0) first_bits = device.d();
      CHECK(device.d() == first_bits);
    }
    require(api.exec_destroy(exec));
    require(api.graph_destroy(graph));
    CUcontext popped = nullptr;
    require(cuda::driver().ctx_pop_current(&popped));
    CUcontext after = nullptr;
    require(cuda::driver().ctx_get_current(&after));
    CHECK(after == before);
    require(cuda::driver().device_primary_ctx_release(0));
  }
}

TEST_CASE("a first call on one thread does not disturb a capture on another", "[gpu][context]") {
  if (cuda_devices().empty()) SKIP(no_gpu);
  const TemporaryDirectory cache;
  const auto backend = make_cuda_backend();
  const GraphApi api;
  ContextOptions options = options_in(cache);
  options.tuning = Tuning::on;
  options.tuning_budget_seconds = 0.2;
  Context context(options);
  const OwnStream capturing(*backend), other(*backend);
  const Problem problem{.m = 256, .n = 256, .k = 512};
  DeviceOperands device(*backend, problem), second(*backend, problem, 2);
  const KernelConfig config = with_schedule(sm80_config, Schedule::split_k, 2, 0);
  context.gemm(problem, device.operands, capturing, config);
  backend->synchronize(capturing);

  CUcontext primary = nullptr;
  require(cuda::driver().device_primary_ctx_retain(&primary, 0));
  require(cuda::driver().ctx_push_current(primary));
  require(api.begin_capture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL));
  std::string failure;
  std::thread([&] {
    // Measures, compiles, loads, allocates.
    const auto error = error_if_any([&] { context.gemm(problem, second.operands, other); });
    if (error) failure = error->what();
  }).join();
  CHECK(failure == "");
  context.gemm(problem, device.operands, capturing, config);
  CUgraph graph = nullptr;
  CHECK(api.end_capture(capturing, &graph) == CUDA_SUCCESS);
  if (graph) require(api.graph_destroy(graph));
  backend->synchronize(other);
  CHECK(second.violation(context.plan(problem).config.main_loop) == "");
  CUcontext popped = nullptr;
  require(cuda::driver().ctx_pop_current(&popped));
  require(cuda::driver().device_primary_ctx_release(0));
}
