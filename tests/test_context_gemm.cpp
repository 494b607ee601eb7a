// Context::gemm() on the emulator.
#include <cfenv>
#include <cmath>
#include <cstring>
#include <thread>

#include "catch.hpp"
#include "context_fixtures.hpp"
#include "errors.hpp"
#include "sample_configs.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("gemm on the emulator is right for each schedule, and its kernel is made once", "[context]") {
  const TemporaryDirectory cache;
  Context context(emulator_options(cache));
  const Problem problem{.m = 150,
                        .n = 130,
                        .k = 200,
                        .alpha = 1.5,
                        .beta = -0.5,
                        .epilogue = {.bias = Bias::along_n, .activation = Activation::leaky_relu}};
  const auto [schedule, splits, grid] = GENERATE(table<Schedule, int, int>({{Schedule::data_parallel, 1, 0},
                                                                            {Schedule::persistent, 1, 4},
                                                                            {Schedule::split_k, 3, 0},
                                                                            {Schedule::stream_k, 1, 4},
                                                                            {Schedule::stream_k_one_tile, 1, 4},
                                                                            {Schedule::stream_k_two_tile, 1, 4}}));
  const KernelConfig config = with_schedule(sm80_config, schedule, splits, grid);
  HostOperands host(problem);
  for (int call = 0; call < 3; ++call) {
    host.poison();
    context.gemm(problem, host.operands, nullptr, config);
    CHECK(host.violation(MainLoop::sm80) == "");
  }
  CHECK(context.counters().launches == 3);
  CHECK(context.counters().compiles == 1);
  CHECK(context.counters().memory_hits == 0);  // the warm path does not even ask the store

  // Another problem, with the same kernel since its rows are aligned alike.
  const Problem larger{.m = 70,
                       .n = 134,
                       .k = 96,
                       .alpha = -1,
                       .beta = 2,
                       .epilogue = {.bias = Bias::along_n, .activation = problem.epilogue.activation}};
  HostOperands more(larger, 2);
  context.gemm(larger, more.operands, nullptr, config);
  CHECK(more.violation(MainLoop::sm80) == "");
  CHECK(context.counters().compiles == 1);

  Context second(emulator_options(cache));
  host.poison();
  second.gemm(problem, host.operands, nullptr, config);
  CHECK(host.violation(MainLoop::sm80) == "");
  CHECK(second.counters().compiles == 0);
  CHECK(second.counters().disk_hits == 1);
}

TEST_CASE("gemm on the emulator runs the sm90 main loop through remembered tensor maps", "[context]") {
  const TemporaryDirectory cache;
  Context context(emulator_options(cache));
  KernelConfig config{
      .main_loop = MainLoop::sm90, .block_m = 128, .block_n = 128, .block_k = 64, .stages = 3, .warps = 8};
  config.schedule = Schedule::persistent;
  config.grid = 4;
  const Problem problem{.m = 200, .n = 136, .k = 136};
  HostOperands first(problem, 1), second(problem, 2);
  for (HostOperands* host : {&first, &second, &first}) {
    host->poison();
    context.gemm(problem, host->operands, nullptr, config);
    CHECK(host->violation(MainLoop::sm90) == "");
  }
}

TEST_CASE("A, B, C and D may be slices of one array's columns", "[context]") {
  const TemporaryDirectory cache;
  Context context(emulator_options(cache));
  constexpr int size = 20, width = 4 * size + 3;
  std::vector<float> array(std::size_t(size) * width);
  for (std::size_t i = 0; i < array.size(); ++i) array[i] = float(int(i * 37 % 101) - 50);
  const std::vector<float> before = array;
  float* const first = array.data();
  const Problem problem{.m = size,
                        .n = size,
                        .k = size,
                        .a = {.type = f32, .ld = width},
                        .b = {.type = f32, .ld = width},
                        .c = {.type = f32, .ld = width},
                        .d = {.type = f32, .ld = width},
                        .beta = 2};
  context.gemm(problem, {.a = first, .b = first + 2 * size, .c = first + 3 * size, .d = first + size});
  for (int i = 0; i < size; ++i)
    for (int j = 0; j < width; ++j) {
      const auto at = [&](int row, int column) { return before[std::size_t(row * width + column)]; };
      float expected = at(i, j);
      if (j >= size && j < 2 * size) {
        expected = 2 * at(i, j + 2 * size);
        for (int k = 0; k < size; ++k) expected += at(i, k) * at(k, j + size);
      }
      REQUIRE(array[std::size_t(i * width + j)] == expected);
    }
}

TEST_CASE("An empty D launches nothing, and an empty sum still writes D", "[context]") {
  const TemporaryDirectory cache;
  Context context(emulator_options(cache));
  context.gemm({.m = 0, .n = 7, .k = 7}, {});
  context.gemm({.m = 7, .n = 0, .k = 7}, {});
  CHECK(context.counters().launches == 0);
  for (const Problem& problem :
       {Problem{.m = 40, .n = 40, .k = 0, .beta = 2},
        Problem{.m = 40, .n = 40, .k = 40, .alpha = 0, .beta = 1, .epilogue = {.bias = Bias::along_n}}}) {
    HostOperands host(problem);
    host.operands.a = host.operands.b = nullptr;
    context.gemm(problem, host.operands);
    CHECK(host.violation(MainLoop::sm80) == "");
  }
}

TEST_CASE("A caller's workspace is used, and refused when it is too small or misaligned", "[context]") {
  const TemporaryDirectory cache;
  Context context(emulator_options(cache));
  const Problem problem{.m = 100, .n = 100, .k = 256};
  const KernelConfig config = with_schedule(sm80_config, Schedule::split_k, 4, 0);
  const std::size_t bytes = context.workspace_size(problem, config);
  CHECK(bytes == 4 * 4 * 64 * 64 * sizeof(float));
  HostOperands host(problem);
  const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(256, bytes + 256), std::free);
  std::memset(memory.get(), 0xff, bytes + 256);  // any contents
  host.operands.workspace = memory.get();
  host.operands.workspace_bytes = bytes;
  context.gemm(problem, host.operands, nullptr, config);
  CHECK(host.violation(MainLoop::sm80) == "");

  host.operands.workspace_bytes = bytes - 1;
  const Error small = error_of([&] { context.gemm(problem, host.operands, nullptr, config); });
  CHECK(small.code() == ErrorCode::workspace_too_small);
  CHECK_THAT(small.what(), ContainsSubstring(std::to_string(bytes)));
  CHECK_FALSE(small.config().empty());
  host.operands.workspace_bytes = bytes;
  host.operands.workspace = static_cast<char*>(memory.get()) + 128;
  CHECK(error_of([&] { context.gemm(problem, host.operands, nullptr, config); }).code() == ErrorCode::invalid_operand);
}

TEST_CASE("Packed operands live in the workspace, a caller's or the Context's", "[context]") {
  const TemporaryDirectory cache;
  Context context(emulator_options(cache));
  const Problem problem{.m = 70, .n = 67, .k = 201};
  const KernelConfig config{.main_loop = MainLoop::sm90,
                            .block_m = 64,
                            .block_n = 64,
                            .block_k = 64,
                            .warps = 4,
                            .pack_a = true,
                            .pack_b = true,
                            .schedule = Schedule::split_k,
                            .splits = 2};
  const Plan plan = context.plan(problem, config);
  CHECK(plan.packed_bytes == 70 * 256 * 2 + 201 * 128 * 2);
  CHECK(plan.workspace_bytes == 2 * 4 * 64 * 64 * sizeof(float) + plan.packed_bytes);
  CHECK(plan.workspace_bytes == context.workspace_size(problem, config));
  CHECK_THAT(plan.explain(), ContainsSubstring("packing") && ContainsSubstring("A and B"));
  const std::vector<KernelText> sources = context.sources(problem, config),
                                binaries = context.binaries(problem, config);
  REQUIRE(sources.size() == 2);
  REQUIRE(binaries.size() == 2);
  CHECK(sources[0].name == "packing");
  CHECK(sources[0].entry == "pack_2_copied_copied");
  CHECK_THAT(sources[0].text, ContainsSubstring(sources[0].entry));
  CHECK(sources[1].name == "gemm");
  CHECK(sources[1].text == context.source(problem, config));
  CHECK(binaries[0].entry == sources[0].entry);
  CHECK(binaries[0].text.substr(1, 3) == "ELF");
  CHECK(binaries[1].text == context.binary(problem, config));
  CHECK(context.sources(problem, sm80_config).size() == 1);

  HostOperands host(problem);
  for (int call = 0; call < 2; ++call) {  // the second finds the first one's copies
    host.poison();
    context.gemm(problem, host.operands, nullptr, config);
    CHECK(host.violation(MainLoop::sm90) == "");
  }
  CHECK(context.counters().launches == 2);
  CHECK(context.counters().compiles == 2);

  const std::size_t bytes = plan.workspace_bytes;
  const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(256, (bytes + 255) / 256 * 256), std::free);
  std::memset(memory.get(), 0xff, bytes);
  host.operands.workspace = memory.get();
  host.operands.workspace_bytes = bytes;
  host.poison();
  context.gemm(problem, host.operands, nullptr, config);
  CHECK(host.violation(MainLoop::sm90) == "");
  host.operands.workspace_bytes = bytes - 1;
  CHECK(error_of([&] { context.gemm(problem, host.operands, nullptr, config); }).code() ==
        ErrorCode::workspace_too_small);
}

TEST_CASE("Threads that ask for the same new problem at once compile it once", "[context]") {
  const TemporaryDirectory cache;
  Context context(emulator_options(cache));
  const Problem problem{.m = 100, .n = 90, .k = 80};
  const KernelConfig config = with_schedule(sm80_config, Schedule::split_k, 2, 0);
  std::vector<std::string> violations(8, "not run");
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < violations.size(); ++i) {
    threads.emplace_back([&, i] {
      HostOperands host(problem, i);
      const auto stream = reinterpret_cast<Stream>(0x100 * (i + 1));  // the emulator runs a launch before it returns
      for (int call = 0; call < 3; ++call) context.gemm(problem, host.operands, stream, config);
      violations[i] = host.violation(MainLoop::sm80);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(violations == std::vector<std::string>(8));
  CHECK(context.counters().compiles == 1);
  CHECK(context.counters().launches == 24);
}

TEST_CASE("The emulator's results do not follow the calling thread's rounding", "[context]") {
  const TemporaryDirectory cache;
  Context context({.device = Device::emulator, .tuning = Tuning::off, .cache_dir = cache.path().string()});
  const Problem problem{.m = 16, .n = 16, .k = 40, .a = {f32}, .b = {f32}, .d = {f32}, .alpha = 0.3};
  std::vector<float> a(16 * 40), b(40 * 16), nearest(16 * 16), upward(16 * 16);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = 1 / float(i + 3), b[i] = 1 / float(2 * i + 5);
  context.gemm(problem, {.a = a.data(), .b = b.data(), .d = nearest.data()});
  std::fesetround(FE_UPWARD);
  context.gemm(problem, {.a = a.data(), .b = b.data(), .d = upward.data()});
  const int after = std::fegetround();
  std::fesetround(FE_TONEAREST);
  CHECK(after == FE_UPWARD);
  CHECK(upward == nearest);
}

TEST_CASE("A slope of -0 keeps its sign", "[context][activations]") {
  const TemporaryDirectory cache;
  Context context(emulator_options(cache));
  Problem problem{.m = 1, .n = 1, .k = 1, .a = {f32}, .b = {f32}, .d = {f32}};
  problem.epilogue.activation = Activation::leaky_relu;
  const float a = -4, b = 1;
  const auto negative = [&](double slope) {
    problem.epilogue.slope = slope;
    float d = 1;
    context.gemm(problem, {.a = &a, .b = &b, .d = &d});
    CHECK(d == 0);
    return std::signbit(d);
  };
  CHECK(negative(0.0));
  CHECK_FALSE(negative(-0.0));
  CHECK(negative(1e-60));  // which f32 rounds to 0
  CHECK_FALSE(negative(-1e-60));
  CHECK(context.counters().compiles == 1);
}
