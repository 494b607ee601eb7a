// gemm() in CUDA graphs on a real GPU.
#include <chrono>
#include <functional>
#include <memory>
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

namespace {

/// Operands that need a packed copy of A.
constexpr Problem unaligned{.m = 200, .n = 136, .k = 511};

/// Replays what `capture` has captured on the stream, and frees it.
void replay(const GraphApi& api, Stream stream, const Backend& backend, int times, const std::function<void()>& capture,
            const std::function<void()>& after_each) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  require(api.begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  capture();
  require(api.end_capture(stream, &graph));
  require(api.instantiate(&exec, graph, 0));
  require(api.graph_destroy(graph));
  for (int i = 0; i < times; ++i) {
    require(api.launch(exec, stream));
    const_cast<Backend&>(backend).synchronize(stream);
    after_each();
  }
  require(api.exec_destroy(exec));
}

}  // namespace

TEST_CASE("a captured gemm takes memory that the same capture allocates", "[gpu][context]") {
  if (cuda_devices().empty()) SKIP(no_gpu);
  const TemporaryDirectory cache;
  const auto backend = make_cuda_backend();
  const GraphApi api;
  Context context(options_in(cache));
  const PrimaryContext current;
  const OwnStream stream(*backend);
  for (const Problem& problem : {Problem{.m = 256, .n = 256, .k = 2048}, unaligned}) {
    DeviceOperands device(*backend, problem);
    context.gemm(problem, device.operands, stream);
    backend->synchronize(stream);
    const MainLoop main_loop = context.plan(problem).config.main_loop;
    const std::size_t bytes_a = std::size_t(problem.m * problem.k) * 2,
                      bytes_d = std::size_t(problem.m * problem.n) * 2;
    const auto of = [](const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); };
    device.poison();
    replay(
        api, stream, *backend, 3,
        [&] {
          CUdeviceptr a = 0, d = 0;
          require(api.mem_alloc_async(&a, bytes_a, stream));
          require(api.mem_alloc_async(&d, bytes_d, stream));
          require(api.memcpy_dtod_async(a, of(device.operands.a), bytes_a, stream));
          Operands operands = device.operands;
          operands.a = reinterpret_cast<const void*>(a);
          operands.d = reinterpret_cast<void*>(d);
          context.gemm(problem, operands, stream);
          require(api.memcpy_dtod_async(of(device.operands.d), d, bytes_d, stream));
          require(api.mem_free_async(a, stream));
          require(api.mem_free_async(d, stream));
          std::vector<char> host(bytes_a);
          operands.a = host.data();
          CHECK_THAT(refusal(ErrorCode::invalid_operand, [&] { context.gemm(problem, operands, stream); }),
                     Catch::Matchers::ContainsSubstring("host memory"));
        },
        [&] {
          CHECK(device.violation(main_loop) == "");
          device.poison();
        });
  }
}

TEST_CASE("branches of a captured graph have workspaces of their own", "[gpu][context]") {
  if (cuda_devices().empty()) SKIP(no_gpu);
  const TemporaryDirectory cache;
  const auto backend = make_cuda_backend();
  const GraphApi api;
  Context context(options_in(cache));
  const PrimaryContext current;
  const OwnStream stream(*backend), branch(*backend);
  const Problem problem{.m = 256, .n = 256, .k = 4096};
  const KernelConfig split = with_schedule(sm80_config, Schedule::stream_k, 1, 60);
  for (const bool packed : {false, true}) {
    const Problem its = packed ? unaligned : problem;
    std::vector<std::unique_ptr<DeviceOperands>> operands;
    for (std::size_t i = 0; i < 12; ++i) operands.push_back(std::make_unique<DeviceOperands>(*backend, its, i));
    const KernelConfig config = packed ? context.plan(its).config : split;
    context.gemm(its, operands[0]->operands, stream, config);
    backend->synchronize(stream);
    void *const fork = backend->create_event(), *const join = backend->create_event();
    replay(
        api, stream, *backend, 4,
        [&] {
          context.gemm(its, operands[0]->operands, stream, config);
          backend->record_event(fork, stream);
          require(api.stream_wait_event(branch, static_cast<CUevent>(fork), 0));
          for (std::size_t i = 1; i < 11; ++i)
            context.gemm(its, operands[i]->operands, i % 2 ? branch : stream, config);
          backend->record_event(join, branch);
          require(api.stream_wait_event(stream, static_cast<CUevent>(join), 0));
          context.gemm(its, operands[11]->operands, stream, config);
        },
        [&] {
          for (auto& device : operands) {
            CHECK(device->violation(config.main_loop) == "");
            device->poison();
          }
        });
    backend->destroy_event(fork);
    backend->destroy_event(join);
    const Counters counters = context.counters();
    CHECK(counters.graph_workspace_bytes > 0);
    context.gemm(its, operands[0]->operands, stream, config);
    backend->synchronize(stream);
    // What destroyed the graph may leave word a little later, from a thread of the driver's.
    for (int i = 0; i < 200 && context.counters().graph_workspace_bytes > 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      context.trim();
    }
    CHECK(context.counters().graph_workspace_bytes == 0);
  }
}

TEST_CASE("threads that capture into one graph in turn multiply what is their own", "[gpu][context][threads]") {
  if (cuda_devices().empty()) SKIP(no_gpu);
  const TemporaryDirectory cache;
  const auto backend = make_cuda_backend();
  const GraphApi api;
  Context context(options_in(cache));
  const PrimaryContext current;
  const OwnStream stream(*backend);
  std::vector<std::unique_ptr<DeviceOperands>> operands;
  for (std::size_t i = 0; i < 32; ++i) operands.push_back(std::make_unique<DeviceOperands>(*backend, unaligned, i));
  context.gemm(unaligned, operands[0]->operands, stream);
  backend->synchronize(stream);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  require(api.begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  std::vector<std::thread> threads;
  std::vector<std::string> failures(4);
  for (std::size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (std::size_t j = i; j < operands.size(); j += 4) {
        const auto error = error_if_any([&] { context.gemm(unaligned, operands[j]->operands, stream); });
        if (error) failures[i] = error->what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == std::vector<std::string>(4));
  require(api.end_capture(stream, &graph));
  require(api.instantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) {
    require(api.launch(exec, stream));
    backend->synchronize(stream);
    for (auto& device : operands) {
      CHECK(device->violation(context.plan(unaligned).config.main_loop) == "");
      device->poison();
    }
  }
  require(api.exec_destroy(exec));
  require(api.graph_destroy(graph));
}
