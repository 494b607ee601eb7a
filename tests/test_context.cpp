#include <cfenv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "context_internals.hpp"
#include "core/problem.hpp"
#include "errors.hpp"
#include "jitgemm/jitgemm.hpp"
#include "random.hpp"
#include "reference.hpp"
#include "sample_configs.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

ContextOptions emulator_options(const TemporaryDirectory& cache, std::optional<Tuning> tuning = Tuning::off) {
  return {.device = Device::emulator, .tuning = tuning, .cache_dir = cache.path().string()};
}

ContextOptions compile_only(const TemporaryDirectory& cache, const std::string& architecture = "sm_80") {
  return {.device = Device::compile_only, .architecture = architecture, .cache_dir = cache.path().string()};
}

/// Host matrices for a problem, 256-byte aligned, D poisoned with NaN.
class HostOperands {
 public:
  explicit HostOperands(const Problem& problem, std::uint64_t seed = 1) : problem_(normalise(problem)) {
    const Problem& p = problem_;
    Random random(seed);
    const auto matrix = [&](std::int64_t rows, std::int64_t columns, Layout layout, std::int64_t ld, DataType type) {
      return filled(random, layout == Layout::row_major ? rows * ld : columns * ld, type);
    };
    operands.a = matrix(p.m, p.k, p.a.layout, p.a.ld, p.a.type);
    operands.b = matrix(p.k, p.n, p.b.layout, p.b.ld, p.b.type);
    operands.d = matrix(p.m, p.n, Layout::row_major, p.d.ld, p.d.type);
    if (reads_c(p)) operands.c = matrix(p.m, p.n, Layout::row_major, p.c.ld, p.d.type);
    if (p.epilogue.bias != Bias::none) operands.bias = filled(random, p.n, p.d.type);
    poison();
  }

  void poison() {
    for (std::int64_t i = 0; i < problem_.m * problem_.d.ld; ++i) {
      store(std::numeric_limits<double>::quiet_NaN(), operands.d, i, problem_.d.type);
    }
  }
  std::string violation(MainLoop main_loop) const {
    return test::violation(reference(problem_, operands, main_loop), problem_, operands.d);
  }

  Operands operands;

 private:
  void* filled(Random& random, std::int64_t elements, DataType type) {
    const std::size_t bytes = (std::size_t(elements) * size_of(type) / 256 + 2) * 256;
    memory_.emplace_back(std::aligned_alloc(256, bytes), std::free);
    for (std::int64_t i = 0; i < elements; ++i) store(2 * random.uniform() - 1, memory_.back().get(), i, type);
    return memory_.back().get();
  }

  Problem problem_;
  std::vector<std::unique_ptr<void, void (*)(void*)>> memory_;
};

}  // namespace

TEST_CASE("What measures a Context works on that Context's own device", "[context]") {
  const TemporaryDirectory cache;
  ContextOptions options = emulator_options(cache);
  options.emulator_sm_count = 7;
  Context context(options);
  Backend& backend = ContextInternals::backend(context);
  CHECK(backend.device().sm_count == 7);
  const Context moved(std::move(context));
  CHECK(&ContextInternals::backend(moved) == &backend);
  CHECK_THAT(error_of([&] { ContextInternals::backend(context); }).what(), ContainsSubstring("moved from"));
}

TEST_CASE("A Context that was moved from says so", "[context]") {
  const TemporaryDirectory cache;
  Context first(compile_only(cache));
  Context second(std::move(first));
  CHECK_THAT(error_of([&] { first.plan({.m = 1, .n = 1, .k = 1}); }).what(), ContainsSubstring("moved from"));
  CHECK_THROWS_AS(first.gemm({}, {}), Error);
  CHECK_THROWS_AS(first.device(), Error);
  CHECK_THROWS_AS(first.counters(), Error);
  CHECK(second.device().architecture == "sm_80");
  first = std::move(second);
  CHECK(first.device().architecture == "sm_80");
}

TEST_CASE("Without a device, a Context plans, shows and explains, and refuses to run", "[context]") {
  const TemporaryDirectory cache;
  Context context(compile_only(cache, "sm_90a"));
  const Problem problem{.m = 1536, .n = 1792, .k = 6016};
  const KernelConfig config = with_schedule({.block_k = 32}, Schedule::stream_k_two_tile, 1, 132);
  const Plan plan = context.plan(problem, config);
  CHECK(plan.source == PlanSource::pinned);
  CHECK(plan.tiles_m == 12);
  CHECK(plan.tiles_n == 14);
  CHECK(plan.stream_k_tiles == 36);
  CHECK(plan.data_parallel_tiles == 132);
  CHECK(plan.ctas == 132);
  CHECK(plan.k_blocks_per_tile == 188);
  CHECK(plan.stream_k_blocks == 36 * 188);
  CHECK(plan.workspace_bytes == 2 * 132 * 128 * 128 * 4);
  CHECK(plan.workspace_bytes == context.workspace_size(problem, config));
  CHECK(plan.registers == -1);

  const std::string text = plan.explain();
  for (const char* word :
       {"1536, 1792, 6016", "BLK_M, BLK_N, BLK_K = 128 x 128 x 32", "12 x 14",
        "36 stream-K + 132 data-parallel = 168 in total", "188 per tile, 6768 stream-K in total", "not compiled yet",
        "stream_k_two_tile", "group_m 8", "pinned", "floor", "predicted", "not measured"}) {
    CHECK_THAT(text, ContainsSubstring(word));
  }
  CHECK_THAT(text, ContainsSubstring("CTAs            132"));
  CHECK_THAT(context.source(problem, config), ContainsSubstring("BLOCK_M = 128"));

  Plan measured = plan;
  measured.measured_us = 20;
  measured.runners_up = {{plan.config, 19}, {plan.config, 21}};
  CHECK_THAT(measured.explain(),
             ContainsSubstring("19.00 us  " + to_string(plan.config) + ", ahead by less than the noise\n") &&
                 ContainsSubstring("21.00 us  " + to_string(plan.config) + "\n"));

  const Plan chosen = context.plan(problem);
  CHECK(chosen.source == PlanSource::model);
  CHECK(context.workspace_size(problem) == chosen.workspace_bytes);
  const std::vector<Plan> all = context.candidates(problem);
  REQUIRE(all.size() > 50);
  CHECK(all.front().config == chosen.config);
  for (std::size_t i = 1; i < all.size(); ++i) CHECK(all[i - 1].predicted.us <= all[i].predicted.us);

  HostOperands host({.m = 64, .n = 64, .k = 64});
  const Error error = error_of([&] { context.gemm({.m = 64, .n = 64, .k = 64}, host.operands); });
  CHECK(error.code() == ErrorCode::no_device);
  CHECK_THAT(error.problem(), ContainsSubstring("m=64 n=64 k=64"));
}

TEST_CASE("Errors carry the problem and the configuration", "[context]") {
  const TemporaryDirectory cache;
  Context context(emulator_options(cache));
  Error error = error_of([&] { context.plan({.m = -1, .n = 5, .k = 5}); });
  CHECK(error.code() == ErrorCode::invalid_problem);
  CHECK_THAT(error.problem(), ContainsSubstring("m=-1 n=5 k=5"));

  const Problem problem{.m = 64, .n = 64, .k = 64};
  KernelConfig illegal = sm80_config;
  illegal.block_m = 63;
  HostOperands host(problem);
  error = error_of([&] { context.gemm(problem, host.operands, nullptr, illegal); });
  CHECK(error.code() == ErrorCode::invalid_config);
  CHECK_THAT(error.config(), ContainsSubstring("63"));
  CHECK_THAT(error.problem(), ContainsSubstring("m=64"));
  CHECK(error_of([&] { context.compile(problem, illegal); }).code() == ErrorCode::invalid_config);
  CHECK(error_of([&] { context.workspace_size(problem, illegal); }).code() == ErrorCode::invalid_config);

  host.operands.b = nullptr;
  CHECK(error_of([&] { context.gemm(problem, host.operands); }).code() == ErrorCode::invalid_operand);
  CHECK(error_of([&] { context.tune({.m = 4, .n = 4, .k = 0}); }).code() == ErrorCode::invalid_problem);
  CHECK(context.counters().launches == 0);
}

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

TEST_CASE("The emulator tunes inside gemm only when asked to, once a problem, and stores the choice", "[context]") {
  const TemporaryDirectory cache;
  const Problem problem{.m = 64, .n = 64, .k = 64};
  HostOperands host(problem);
  {
    const ScopedEnvironment unset("JITGEMM_TUNING", nullptr);
    Context context(emulator_options(cache, std::nullopt));
    context.gemm(problem, host.operands);
    CHECK(context.counters().tuned == 0);
  }
  KernelConfig tuned;
  {
    const ScopedEnvironment asked("JITGEMM_TUNING", "on");
    ContextOptions options = emulator_options(cache, std::nullopt);
    options.tuning_budget_seconds = 0.2;
    Context context(options);
    CHECK_THAT(context.plan(problem).why, ContainsSubstring("will measure"));
    context.gemm(problem, host.operands);
    context.gemm(problem, host.operands);
    CHECK(context.counters().tuned == 1);
    const Plan plan = context.plan(problem);
    CHECK(plan.source == PlanSource::measured);
    CHECK(plan.measured_us > 0);
    CHECK(plan.registers >= 0);
    tuned = plan.config;
  }
  CHECK(std::filesystem::exists(cache.path() / "tuning.jsonl"));
  Context later(emulator_options(cache, Tuning::cached));
  CHECK(later.plan(problem).source == PlanSource::exact);
  CHECK(later.plan(problem).config == tuned);
  CHECK_THAT(later.plan({.m = 80, .n = 64, .k = 64}).why, ContainsSubstring("nearest is m=64 n=64 k=64"));
  CHECK(later.plan({.m = 2000, .n = 64, .k = 64}).source == PlanSource::model);
  host.poison();
  later.gemm(problem, host.operands);
  CHECK(host.violation(tuned.main_loop) == "");
  CHECK(later.counters().tuned == 0);
  CHECK(Context(emulator_options(cache, Tuning::off)).plan(problem).source == PlanSource::model);

  ContextOptions spent = emulator_options(cache, Tuning::on);
  spent.tuning_total_budget_seconds = 0;
  Context broke(spent);
  const Problem another{.m = 500, .n = 40, .k = 32};
  HostOperands other(another);
  broke.gemm(another, other.operands);
  CHECK(broke.counters().tuned == 0);
  CHECK_THAT(broke.plan(another).why, ContainsSubstring("budget is spent"));
}

TEST_CASE("tune() measures whatever the mode, reports, and its winner is what gemm then runs", "[context]") {
  const TemporaryDirectory cache;
  ContextOptions options = emulator_options(cache, Tuning::cached);
  options.tuning_budget_seconds = 0.2;
  options.bucket_m = true;
  Context context(options);
  const Problem problem{.m = 48, .n = 64, .k = 64};
  int last = 0;
  const TuneReport report = context.tune(problem, [&](int done, int total) {
    CHECK(done <= total);
    last = done;
  });
  CHECK(last > 0);
  CHECK(report.plan.source == PlanSource::measured);
  CHECK_FALSE(report.candidates.empty());
  CHECK(context.plan(problem).config == report.plan.config);
  // The bucket is m = 64.
  CHECK(context.plan({.m = 63, .n = 64, .k = 64}).source == PlanSource::exact);
  CHECK_THAT(context.plan({.m = 63, .n = 64, .k = 64}).why, ContainsSubstring("m=64"));
  CHECK(context.plan({.m = 65, .n = 64, .k = 64}).source != PlanSource::exact);
}

TEST_CASE("compile and warm fill the cache, and plan then knows the registers", "[context]") {
  const TemporaryDirectory cache;
  std::optional<Context> context;
  context.emplace(compile_only(cache));
  const Problem problem{.m = 300, .n = 200, .k = 100};
  try {
    context->warm(problem);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_compiler) throw;
    SKIP(error.what());
  }
  CHECK(context->counters().compiles == 1);
  const Plan plan = context->plan(problem);
  CHECK(plan.registers > 0);
  CHECK(plan.spill_bytes == 0);
  CHECK_THAT(plan.explain(), ContainsSubstring("no spills"));
  CHECK(context->compile(problem).registers == plan.registers);
  CHECK(context->binary(problem).substr(1, 3) == "ELF");
  CHECK(context->counters().compiles == 1);
}

TEST_CASE("What a progress callback of tune() calls does not wait for the measurement that it is in", "[context]") {
  const TemporaryDirectory cache;
  Context context({.device = Device::emulator,
                   .architecture = "sm_80",
                   .tuning = Tuning::on,
                   .tuning_budget_seconds = 0.01,
                   .cache_dir = cache.path().string()});
  const Problem tuned{.m = 32, .n = 32, .k = 32}, other{.m = 16, .n = 32, .k = 32};
  bool asked = false;
  std::optional<Error> refused;
  context.tune(tuned, [&](int, int) {
    if (std::exchange(asked, true)) return;
    context.workspace_size(other);
    refused = error_if_any([&] { context.tune(other); });
  });
  CHECK(asked);
  REQUIRE(refused);
  CHECK(refused->code() == ErrorCode::invalid_option);
  CHECK(context.tune(other).plan.source == PlanSource::measured);  // and now it may
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
