// Choices from kernels at hand (ContextOptions::at_hand_within), on the emulator.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <thread>
#include <vector>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "context_internals.hpp"
#include "core/problem.hpp"
#include "errors.hpp"
#include "jitgemm/jitgemm.hpp"
#include "jitgemm/version.hpp"
#include "sandbox.hpp"
#include "tune/tuning_db.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

ContextOptions options_in(const fs::path& directory, double within) {
  ContextOptions options;
  options.device = Device::emulator;
  options.tuning = Tuning::off;
  options.cache_dir = directory.string();
  options.at_hand_within = within;
  return options;
}

Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k, DataType type = f16) {
  return {.m = m, .n = n, .k = k, .a = {type}, .b = {type}, .d = {f32}};
}

/// Of A and B full of ones, which D says how many were added of. Without a configuration, as the context chooses.
bool runs_right(Context& context, const Problem& p, const std::optional<KernelConfig>& config = {}) {
  const std::uint16_t one = p.a.type == f16 ? 0x3c00 : 0x3f80;
  const std::vector<std::uint16_t> a(std::size_t(p.m * p.k), one), b(std::size_t(p.k * p.n), one);
  std::vector<float> d(std::size_t(p.m * p.n), std::numeric_limits<float>::quiet_NaN());
  const Operands operands{.a = a.data(), .b = b.data(), .d = d.data()};
  if (config)
    context.gemm(p, operands, nullptr, *config);
  else
    context.gemm(p, operands);
  return std::ranges::all_of(d, [&](float x) { return x == float(p.k); });
}

/// The last choice, not the first, of the cost model: a kernel that is no problem's best.
KernelConfig poor_choice(Context& context, const Problem& p) { return context.candidates(p).back().config; }

}  // namespace

TEST_CASE("Within the factor, kernels at hand serve new problems, and nothing is compiled", "[at_hand][emulator]") {
  const TemporaryDirectory cache;
  const Problem warmed = problem_of(64, 64, 64);
  {
    Context context(options_in(cache.path(), 0));
    context.compile(warmed, poor_choice(context, warmed));
    CHECK(context.counters().compiles == 1);
  }
  for (const double within : {1e9, HUGE_VAL}) {
    Context context(options_in(cache.path(), within));
    for (const Problem& p : {problem_of(64, 64, 64), problem_of(40, 72, 200), problem_of(200, 24, 88)}) {
      CAPTURE(to_string(p), within);
      const Plan plan = context.plan(p);
      CHECK(runs_right(context, p));
      CHECK(plan.source == PlanSource::at_hand);
      CHECK(plan.expected_regret >= 1);
      CHECK_THAT(plan.json(), ContainsSubstring("\"source\":\"at_hand\""));
      CHECK_THAT(plan.why, ContainsSubstring("of the kernels at hand; expected to take") &&
                               ContainsSubstring(" times as long as sm"));
    }
    CHECK(context.counters().compiles == 0);
  }
  Context bounded(options_in(cache.path(), 1));
  const Problem p = problem_of(40, 72, 200);
  CHECK_THAT(bounded.plan(p).why, !ContainsSubstring("at hand"));
  CHECK(runs_right(bounded, p));
  CHECK(bounded.counters().compiles == 1);
  CHECK(runs_right(bounded, p));
  CHECK(bounded.counters().compiles == 1);
}

TEST_CASE("What is loaded is at hand, too, and what another thread asks for meanwhile", "[at_hand][emulator]") {
  const TemporaryDirectory cache;
  Context context(options_in(cache.path(), HUGE_VAL));
  CHECK(runs_right(context, problem_of(64, 64, 64)));  // nothing is at hand
  CHECK(context.counters().compiles == 1);
  std::vector<std::thread> threads;
  std::vector<int> right(4);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back(
        [&, i] { right[std::size_t(i)] = runs_right(context, problem_of(32 + 8 * i, 48, 64 + 8 * i)); });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == std::vector{1, 1, 1, 1});
  CHECK(context.counters().compiles == 1);
}

TEST_CASE("A kernel serves its own types and layouts alone", "[at_hand][emulator]") {
  const TemporaryDirectory cache;
  Context context(options_in(cache.path(), HUGE_VAL));
  context.warm(problem_of(64, 64, 64));
  CHECK(runs_right(context, problem_of(64, 64, 64, bf16)));
  CHECK(context.counters().compiles == 2);
  Problem transposed = problem_of(64, 64, 64);
  transposed.b.layout = Layout::column_major;
  CHECK(runs_right(context, transposed));
  CHECK(context.counters().compiles == 3);
  CHECK(runs_right(context, problem_of(24, 64, 128, bf16)));
  CHECK(context.counters().compiles == 3);
}

TEST_CASE("A damaged kernel is not at hand, those of the system's layer are", "[at_hand][emulator]") {
  const TemporaryDirectory system, own;
  Context(options_in(system.path(), 0)).warm(problem_of(64, 64, 64));
  {
    const ScopedEnvironment layer("JITGEMM_SYSTEM_CACHE_DIR", system.path().c_str());
    Context context(options_in(own.path(), HUGE_VAL));
    CHECK(runs_right(context, problem_of(40, 72, 200)));
    CHECK(context.counters().compiles == 0);
  }
  for (const fs::directory_entry& file : fs::recursive_directory_iterator(system.path()))
    if (file.is_regular_file() && file.file_size() > 4096) fs::resize_file(file.path(), file.file_size() - 1);
  const CapturedLog log;
  Context context(options_in(system.path(), HUGE_VAL));
  CHECK(runs_right(context, problem_of(40, 72, 200)));
  CHECK(context.counters().compiles == 1);
}

TEST_CASE("A kernel whose launch chooses the cluster serves in several", "[at_hand][emulator]") {
  const TemporaryDirectory cache;
  const KernelConfig any_cluster =
      parse_kernel_config("sm90 64x64x64 group_m=4 stages=4 warps=4 cluster_at_launch=true schedule=data_parallel");
  const Problem p = problem_of(520, 504, 192);
  ContextOptions options = options_in(cache.path(), 0);
  options.architecture = "sm_90a";
  {
    Context context(options);
    context.compile(p, any_cluster);
  }
  options.at_hand_within = HUGE_VAL;
  Context context(options);
  const Plan plan = context.plan(p);
  CHECK(plan.source == PlanSource::at_hand);
  CHECK(plan.config.cluster_at_launch);
  CHECK(runs_right(context, p));
  for (const auto& [m, n] :
       {std::array{1, 1}, std::array{2, 1}, std::array{1, 4}, std::array{2, 4}, std::array{8, 1}}) {
    KernelConfig config = any_cluster;
    config.cluster_m = m, config.cluster_n = n;
    CAPTURE(m, n);
    CHECK(runs_right(context, p, config));
  }
  CHECK(context.counters().compiles == 0);
}

TEST_CASE("A kernel serves with the grid and splits that each problem asks for", "[at_hand][emulator]") {
  const TemporaryDirectory cache;
  const Problem few_tiles = problem_of(64, 64, 1024), many_tiles = problem_of(256, 256, 64);
  KernelConfig split;
  {
    Context context(options_in(cache.path(), 0));
    for (const Plan& plan : context.candidates(few_tiles))
      if (plan.config.schedule == Schedule::split_k && plan.config.splits > 2) split = plan.config;
    REQUIRE(split.splits > 2);
    context.compile(few_tiles, split);
  }
  Context context(options_in(cache.path(), HUGE_VAL));
  for (const Problem& p : {few_tiles, many_tiles}) {
    CAPTURE(to_string(p));
    const Plan plan = context.plan(p);
    CHECK(plan.config.schedule == Schedule::split_k);
    CHECK(plan.config.block_m == split.block_m);
    CHECK(runs_right(context, p));
    // No other number of splits that fits is expected to be faster.
    for (const int splits : {1, 2, 4, 8}) {
      KernelConfig other = plan.config;
      other.splits = splits;
      if (plan.k_blocks_per_tile >= 4 * splits)
        CHECK(context.plan(p, other).predicted.us >= plan.predicted.us * (1 - 1e-9));
    }
  }
  CHECK(context.counters().compiles == 0);
}

TEST_CASE("A kernel at hand keeps to the constraints, by its grid", "[at_hand][emulator][constraints]") {
  const TemporaryDirectory cache;
  const Problem p = problem_of(256, 256, 64);
  {
    Context context(options_in(cache.path(), 0));
    context.compile(p, {.block_m = 32, .block_n = 32, .block_k = 64, .stages = 2, .warps = 2});
  }
  ContextOptions options = options_in(cache.path(), HUGE_VAL);
  options.constraints.sms = 1;
  Context context(options);
  const Plan plan = context.plan(p);
  CHECK(plan.source == PlanSource::at_hand);
  CHECK(plan.ctas == 1);
  CHECK(plan.config.block_m == 32);
  CHECK(runs_right(context, p));
  CHECK(context.counters().compiles == 0);
}

TEST_CASE("What another process adds to the cache is at hand before anything is compiled", "[at_hand][emulator]") {
  const TemporaryDirectory cache;
  Context context(options_in(cache.path(), HUGE_VAL));
  CHECK(context.plan(problem_of(64, 64, 64)).source == PlanSource::model);  // the cache is listed, and empty
  {
    Context other(options_in(cache.path(), 0));
    const Problem p = problem_of(48, 48, 48);
    other.compile(p, poor_choice(other, p));
  }
  CHECK(runs_right(context, problem_of(40, 72, 200)));
  CHECK(context.counters().compiles == 0);
}

namespace {

/// Kernels of the cost model's best, middle and last candidates, and what checks them.
void warm_three(const fs::path& directory, const Problem& p) {
  Context context(options_in(directory, 0));
  const std::vector<Plan> all = context.candidates(p);
  for (const std::size_t i : {std::size_t(0), all.size() / 2, all.size() - 1}) context.compile(p, all[i].config);
  ContextInternals::warm_check(context, p);
}

ContextOptions tuning_in(const fs::path& directory, double within) {
  ContextOptions options = options_in(directory, within);
  options.tuning = Tuning::on;
  options.tuning_budget_seconds = 0.5;
  return options;
}

}  // namespace

TEST_CASE("Tuning measures kernels at hand alone, and is no answer for others", "[at_hand][emulator]") {
  const TemporaryDirectory cache;
  const Problem p = problem_of(72, 40, 200);
  warm_three(cache.path(), problem_of(64, 64, 64));
  KernelConfig chosen;
  {
    Context context(tuning_in(cache.path(), HUGE_VAL));
    CHECK_THAT(context.plan(p).why, ContainsSubstring("gemm() will measure first"));
    CHECK(runs_right(context, p));
    CHECK(runs_right(context, p));
    CHECK(context.counters().tuned == 1);
    CHECK(context.counters().compiles == 0);
    const Plan plan = context.plan(p);
    CHECK(plan.source == PlanSource::at_hand);
    CHECK(plan.measured_us > 0);
    CHECK(plan.expected_regret > 0);
    chosen = plan.config;
  }
  CHECK(fs::exists(cache.path() / "tuning_at_hand.jsonl"));
  CHECK_FALSE(fs::exists(cache.path() / "tuning.jsonl"));
  ContextOptions options = tuning_in(cache.path(), HUGE_VAL);
  {
    Context later(options);  // the record serves
    CHECK(later.plan(p).config == chosen);
    CHECK_THAT(later.plan(p).why, ContainsSubstring("of the kernels at hand") && ContainsSubstring("measured "));
    CHECK(runs_right(later, p));
    CHECK(later.counters().tuned == 0);
  }
  options.at_hand_within = 0;
  options.tuning = Tuning::cached;
  CHECK(Context(options).plan(p).source == PlanSource::model);
}

TEST_CASE("Without what checks results, or a kernel at hand, nothing is measured", "[at_hand][emulator]") {
  const TemporaryDirectory cache;
  const Problem p = problem_of(72, 40, 200);
  {
    Context context(options_in(cache.path(), 0));
    context.compile(problem_of(64, 64, 64));
  }
  Context context(tuning_in(cache.path(), HUGE_VAL));
  CHECK(runs_right(context, p));
  CHECK(context.counters().tuned == 0);
  CHECK(context.counters().compiles == 0);
  CHECK(runs_right(context, problem_of(72, 40, 200, bf16)));  // nothing at hand
  CHECK(context.counters().tuned == 0);
  CHECK(context.counters().compiles == 1);
}

TEST_CASE("tune() compares kernels at hand; with none, it compiles the best one", "[at_hand][emulator]") {
  const TemporaryDirectory cache;
  const Problem p = problem_of(72, 40, 200);
  warm_three(cache.path(), problem_of(64, 64, 64));
  Context context(tuning_in(cache.path(), HUGE_VAL));
  const TuneReport report = context.tune(p);
  CHECK(report.candidates.size() > 1);
  CHECK(context.counters().compiles == 0);
  CHECK(report.plan.source == PlanSource::at_hand);
  CHECK(context.plan(p).config == report.plan.config);
  CHECK(context.plan(p).why == report.plan.why);
  const TuneReport other = context.tune(problem_of(72, 40, 200, bf16));
  CHECK(other.candidates.size() == 1);
  CHECK(context.counters().compiles == 2);  // and what checks it
}

TEST_CASE("What was measured goes before what is predicted, also of kernels at hand", "[at_hand][emulator]") {
  const TemporaryDirectory cache;
  const Problem p = problem_of(72, 40, 200);
  KernelConfig best, second, third;
  {
    Context context(options_in(cache.path(), 0));
    const std::vector<Plan> all = context.candidates(p);
    best = all.front().config, second = all.back().config, third = all[1].config;
    context.compile(p, second);
  }
  TuningRecord record;
  record.problem = shape_of(normalise(p));
  record.emulated = true;
  const DeviceInfo device = [&] {
    Context context(options_in(cache.path(), 0));
    return ContextInternals::backend(context).device();
  }();
  record.device_name = device.name;
  record.compute_capability = device.compute_capability;
  record.sm_count = device.sm_count;
  record.config = best;
  record.median_us = 100;
  record.library_version = JITGEMM_VERSION;
  record.runners_up = {{third, 101}, {second, 103}};
  TuningDb(cache.path() / "tuning.jsonl").add(record);
  ContextOptions options = options_in(cache.path(), 1.1);
  options.tuning = Tuning::cached;
  {
    Context context(options);
    const Plan plan = context.plan(p);
    CHECK(plan.source == PlanSource::at_hand);
    CHECK(plan.config == second);
    CHECK(plan.measured_us == 103);
    CHECK(runs_right(context, p));
    CHECK(context.counters().compiles == 0);
  }
  options.at_hand_within = 1.02;  // 103 of 100
  CHECK(Context(options).plan(p).source == PlanSource::exact);
}

TEST_CASE("A workspace of the caller's that the choice does not fit gets a kernel at hand", "[at_hand][emulator]") {
  const TemporaryDirectory cache;
  const Problem p = problem_of(64, 64, 64);
  Context(options_in(cache.path(), 0)).warm(p);
  Context context(options_in(cache.path(), HUGE_VAL));
  alignas(256) static char workspace[256];
  const std::vector<std::uint16_t> ones(64 * 64, 0x3c00);
  std::vector<float> d(64 * 64);
  context.gemm(p, {.a = ones.data(), .b = ones.data(), .d = d.data(), .workspace = workspace, .workspace_bytes = 256});
  CHECK(d.back() == 64);
  CHECK(context.counters().compiles == 0);
}

TEST_CASE("A factor below 1 is refused", "[at_hand]") {
  const TemporaryDirectory cache;
  for (const double within : {-1.0, 0.5, 0.999, std::nan("")}) {
    const Error error = error_of([&] { Context context(options_in(cache.path(), within)); });
    CHECK(error.code() == ErrorCode::invalid_option);
    CHECK_THAT(error.what(), ContainsSubstring("at_hand_within=") && ContainsSubstring("give 1 or more, or 0"));
  }
}
