// A Context on a real GPU: streams, threads, and what a call costs the host.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <iostream>
#include <limits>
#include <thread>

#include "catch.hpp"
#include "cuda_fixtures.hpp"
#include "errors.hpp"
#include "jit/arguments.hpp"
#include "jit/source_generator.hpp"
#include "kernels/launch_shape.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

TEST_CASE("gemm on a GPU is right on the default stream and on another, with all schedules", "[gpu][context]") {
  if (cuda_devices().empty()) SKIP(no_gpu);
  const TemporaryDirectory cache;
  const auto backend = make_cuda_backend();
  Context context(options_in(cache));
  const OwnStream stream(*backend);
  const Problem problem{.m = 512, .n = 384, .k = 1024};
  DeviceOperands device(*backend, problem);
  for (KernelConfig config : both_main_loops(*backend)) {
    for (const auto& [schedule, splits, grid] :
         std::vector<std::tuple<Schedule, int, int>>{{Schedule::data_parallel, 1, 0},
                                                     {Schedule::persistent, 1, 7},
                                                     {Schedule::split_k, 4, 0},
                                                     {Schedule::stream_k, 1, 10},
                                                     {Schedule::stream_k_one_tile, 1, 5},
                                                     {Schedule::stream_k_two_tile, 1, 5}}) {
      config = with_schedule(config, schedule, splits, grid);
      INFO(to_string(config));
      for (const Stream on : {Stream(nullptr), Stream(stream)}) {
        device.poison();
        context.gemm(problem, device.operands, on, config);
        backend->synchronize(on);
        CHECK(device.violation(config.main_loop) == "");
      }
    }
  }
  CHECK(context.plan(problem).registers <= 255);
}

TEST_CASE("eight threads on eight streams at once get right results", "[gpu][context]") {
  if (cuda_devices().empty()) SKIP(no_gpu);
  const TemporaryDirectory cache;
  const auto backend = make_cuda_backend();
  Context context(options_in(cache));
  const Problem problem{.m = 256, .n = 320, .k = 768};
  for (KernelConfig config : both_main_loops(*backend)) {
    config = with_schedule(config, Schedule::stream_k, 1, 11);
    std::vector<std::string> violations(8, "not run");
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < violations.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          const OwnStream stream(*backend);
          DeviceOperands device(*backend, problem, i);
          violations[i].clear();
          for (int round = 0; round < 5 && violations[i].empty(); ++round) {
            device.poison();
            for (int call = 0; call < 40; ++call) context.gemm(problem, device.operands, stream, config);
            backend->synchronize(stream);
            violations[i] = device.violation(config.main_loop);
          }
        } catch (const std::exception& error) {
          violations[i] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(violations == std::vector<std::string>(8));
  }
  CHECK(context.counters().compiles == both_main_loops(*backend).size());
}

TEST_CASE("a caller's device workspace is used, and host memory is refused", "[gpu][context]") {
  if (cuda_devices().empty()) SKIP(no_gpu);
  const TemporaryDirectory cache;
  const auto backend = make_cuda_backend();
  Context context(options_in(cache));
  const OwnStream stream(*backend);
  const Problem problem{.m = 256, .n = 256, .k = 1024};
  const KernelConfig config = with_schedule(sm80_config, Schedule::split_k, 4, 0);
  DeviceOperands device(*backend, problem);
  device.operands.workspace_bytes = context.workspace_size(problem, config);
  device.operands.workspace = device.allocate(device.operands.workspace_bytes);
  context.gemm(problem, device.operands, stream, config);
  backend->synchronize(stream);
  CHECK(device.violation(config.main_loop) == "");

  std::vector<char> host(256 * 1024 * 2);
  Operands wrong = device.operands;
  wrong.a = host.data();
  CHECK_THAT(refusal(ErrorCode::invalid_operand, [&] { context.gemm(problem, wrong, stream, config); }),
             Catch::Matchers::ContainsSubstring("A"));
}

TEST_CASE("a thread's own CUDA context stays current", "[gpu][context]") {
  if (cuda_devices().empty()) SKIP(no_gpu);
  const TemporaryDirectory cache;
  const auto backend = make_cuda_backend();
  const GraphApi api;
  Context context(options_in(cache));
  const Problem problem{.m = 128, .n = 128, .k = 128};
  DeviceOperands device(*backend, problem);
  CUcontext own = nullptr, current = nullptr;
  require(api.ctx_create(&own, 0, 0));
  const OwnStream stream(*backend);
  context.gemm(problem, device.operands, stream);
  backend->synchronize(stream);
  CHECK(device.violation(context.plan(problem).config.main_loop) == "");
  require(cuda::driver().ctx_get_current(&current));
  CHECK(current == own);
  require(api.ctx_destroy(own));
}

TEST_CASE("a warm call costs the host at most 1.5 us above the bare launch", "[gpu][context]") {
  if (cuda_devices().empty()) SKIP(no_gpu);
  const TemporaryDirectory cache;
  const auto backend = make_cuda_backend();
  Context context(options_in(cache));
  const cuda::DriverApi& driver = cuda::driver();
  CUcontext primary = nullptr;
  require(driver.device_primary_ctx_retain(&primary, 0));
  require(driver.ctx_push_current(primary));

  std::vector<KernelConfig> configs = both_main_loops(*backend);
  configs.push_back(with_schedule(sm80_config, Schedule::split_k, 2, 0));
  for (const KernelConfig& config : configs) {
    const NormalProblem problem = normalise({.m = 128, .n = 128, .k = 64});  // short, so that the queue never fills
    DeviceOperands device(*backend, problem);
    const OwnStream stream(*backend);
    context.gemm(problem, device.operands, stream, config);

    // The same kernel with the same arguments, by the driver alone.
    const LaunchShape shape = launch_shape(problem, config);
    const KernelBinary binary{.code = context.binary(problem, config),
                              .entry = generate(problem, config, backend->device()).entry,
                              .architecture = backend->device().architecture(),
                              .compiler = "nvrtc"};
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    require(driver.module_load_data(&module, binary.code.data()));
    require(driver.module_get_function(&function, module, binary.entry.c_str()));
    require(
        driver.func_set_attribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, int(shape.smem_bytes)));
    Workspace workspace;
    if (shape.counters > 0) {
      workspace.memory = device.allocate(shape.partial_bytes);
      workspace.counters = static_cast<unsigned*>(device.allocate(std::size_t(shape.counters) * 4));
      backend->zero(workspace.counters, std::size_t(shape.counters) * 4);
    }
    device::Arguments arguments =
        make_arguments(problem, config, shape, device.operands, workspace,
                       [&](const TensorMapSpec& spec) { return backend->encode_tensor_map(spec); });
    CUlaunchConfig launch = {};
    launch.gridDimX = unsigned(shape.grid);
    launch.gridDimY = launch.gridDimZ = launch.blockDimY = launch.blockDimZ = 1;
    launch.blockDimX = unsigned(shape.threads);
    launch.sharedMemBytes = unsigned(shape.smem_bytes);
    launch.hStream = stream;
    void* parameters[] = {&arguments};

    constexpr int batch = 100, rounds = 60;
    const auto us_per_call = [&](auto&& call) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < batch; ++i) call();
      const auto end = std::chrono::steady_clock::now();
      backend->synchronize(stream);
      return std::chrono::duration<double, std::micro>(end - begin).count() / batch;
    };
    std::vector<double> bare, warm;
    for (int round = 0; round < rounds; ++round) {
      bare.push_back(us_per_call([&] { require(driver.launch_kernel_ex(&launch, function, parameters, nullptr)); }));
      warm.push_back(us_per_call([&] { context.gemm(problem, device.operands, stream, config); }));
    }
    const auto median = [](std::vector<double> x) {
      std::nth_element(x.begin(), x.begin() + std::ptrdiff_t(x.size() / 2), x.end());
      return x[x.size() / 2];
    };
    std::cout << "host time of a call: bare launch " << median(bare) << " us, gemm() " << median(warm) << " us ("
              << to_string(config) << ")" << std::endl;
    CHECK(device.violation(config.main_loop) == "");
    CHECK(median(warm) - median(bare) <= 1.5);
    require(driver.module_unload(module));
  }
  CUcontext popped = nullptr;
  require(driver.ctx_pop_current(&popped));
  require(driver.device_primary_ctx_release(0));
}

TEST_CASE("a Context may outlive the driver", "[gpu][context]") {
  if (cuda_devices().empty()) SKIP(no_gpu);
  // Its destructor runs after the driver's own clean-up at exit, in a process of its own.
  const TemporaryDirectory cache;
  const pid_t child = spawn([&] {
    execl("/proc/self/exe", "tests", "a Context that is destroyed at exit", nullptr);
    return 1;
  });
  CHECK(wait_for(child) == 0);
}

TEST_CASE("a Context that is destroyed at exit", "[.]") {
  static std::unique_ptr<Context> context;
  std::atexit([] { context.reset(); });  // before the driver is loaded, so it runs after the driver's own clean-up
  if (cuda_devices().empty()) SKIP(no_gpu);
  static const TemporaryDirectory cache;
  context = std::make_unique<Context>(options_in(cache));
  const auto backend = make_cuda_backend();
  const Problem problem{.m = 128, .n = 128, .k = 128};
  DeviceOperands device(*backend, problem);
  context->gemm(problem, device.operands, nullptr, with_schedule(sm80_config, Schedule::split_k, 2, 0));
  backend->synchronize(nullptr);
  CHECK(device.violation(MainLoop::sm80) == "");
}
