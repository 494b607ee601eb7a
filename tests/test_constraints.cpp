// What choices keep to, and that it is part of the key. tests/test_batch_invariant.cpp is about bits.
#include "plan/constraints.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "catch.hpp"
#include "core/type_rules.hpp"
#include "errors.hpp"
#include "gemm_cases.hpp"
#include "kernels/launch_shape.hpp"
#include "kernels/packing.hpp"
#include "plan/ranking.hpp"
#include "random.hpp"
#include "sandbox.hpp"
#include "splits_k.hpp"
#include "tuning_samples.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

RatedDevice emulated(const char* architecture) {
  RatedDevice device(device_info_for(architecture));
  device.emulated = true;
  device.sm_count = 5;
  return device;
}

/// Any type, layout, alignment and batch; tiny, skinny, deep and large.
NormalProblem random_problem(Random& random) {
  Problem p;
  p.a.type = p.b.type = random.pick(std::vector<DataType>{f16, f16, bf16, e4m3, tf32, f32, f64, s8});
  p.d.type = default_output(p.a.type);
  if (is_fp8(p.a.type) && random.between(0, 1)) p.accumulation = Accumulation::promoted;
  p.a.layout = random.between(0, 1) ? Layout::row_major : Layout::column_major;
  p.b.layout = random.between(0, 1) ? Layout::row_major : Layout::column_major;
  const int multiple = random.between(0, 1) ? 16 : 1;
  const auto extent = [&](int low, int high) {
    return std::int64_t((random.log_between(low, high) + multiple - 1) / multiple * multiple);
  };
  p.m = extent(1, random.pick(std::vector{40, 300, 9000}));
  p.n = extent(1, random.pick(std::vector{40, 300, 9000}));
  p.k = random.between(0, 20) == 0 ? 0 : extent(1, random.pick(std::vector{40, 1000, 20000}));
  if (random.between(0, 3) == 0) p.batch = random.between(2, 9);
  if (random.between(0, 3) == 0) p.beta = 1;
  return normalise(p);
}

Constraints random_constraints(Random& random, const DeviceInfo& device) {
  Constraints constraints;
  do {
    constraints.batch_invariant = random.between(0, 1);
    if (random.between(0, 1))
      constraints.workspace_bytes = random.between(0, 1) ? 0 : std::size_t(random.log_between(1000, 1 << 24));
    if (random.between(0, 1)) constraints.sms = random.between(1, device.sm_count);
  } while (!constrain(constraints));
  return constraints;
}

struct Broken {
  bool invariance, workspace, sms;
  bool any() const { return invariance || workspace || sms; }
};
Broken broken_by(const KernelConfig& c, const NormalProblem& p, const Constraints& constraints) {
  const LaunchShape shape = launch_shape(p, c);
  return {constraints.batch_invariant && splits_k(c), shape.workspace_bytes() > constraints.workspace_bytes,
          constraints.sms > 0 && std::max(shape.grid, packing_of(p, c).launch.grid) > constraints.sms};
}

}  // namespace

TEST_CASE("Whatever is ranked keeps to the constraints, and there always is something", "[constraints][ranking]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  const std::vector devices{h200, h200, RatedDevice(device_info_for("sm_89")), emulated("sm_90a")};
  int invariance = 0, workspace = 0, sms = 0;  // first choices that keep to nothing
  for (int i = 0; i < 300; ++i) {
    const NormalProblem problem = random_problem(random);
    const RatedDevice& device = random.pick(devices);
    const Constraints constraints = random_constraints(random, device);
    CAPTURE(to_string(problem), device.name, device.emulated, to_string(constraints));
    std::set<MainLoop> main_loops;
    for (const std::size_t limit : {1, 12, 0}) {
      if (limit == 0 && i % 5 != 0) continue;
      const std::vector<RankedConfig> ranked = rank(problem, device, limit, constraints);
      REQUIRE(!ranked.empty());
      for (const RankedConfig& choice : ranked) {
        CAPTURE(to_string(choice.config));
        REQUIRE(why_illegal(choice.config, problem, device).empty());
        REQUIRE_FALSE(broken_by(choice.config, problem, constraints).any());
        REQUIRE(ConstraintFilter(constraints, problem, device).why_not(choice.config).empty());
        main_loops.insert(choice.config.main_loop);
      }
    }
    if (constraints.batch_invariant) CHECK(main_loops.size() == 1);
    const Broken free = broken_by(rank(problem, device, 1).front().config, problem, constraints);
    invariance += free.invariance;
    workspace += free.workspace;
    sms += free.sms;
  }
  CHECK(invariance > 0);
  CHECK(workspace > 0);
  CHECK(sms > 0);
}

TEST_CASE("A batch-invariant choice has the same main loop however many SMs there are", "[constraints][ranking]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  int hopper = 0, portable = 0;
  for (int i = 0; i < 100; ++i) {
    const NormalProblem problem = random_problem(random);
    std::set<MainLoop> main_loops;
    for (const int sm_count : {1, 16, 78, 114, 132, 144}) {
      RatedDevice device = h200;
      device.sm_count = sm_count;
      for (const RankedConfig& ranked : rank(problem, device, 12, {.batch_invariant = true}))
        main_loops.insert(ranked.config.main_loop);
    }
    CAPTURE(to_string(problem));
    REQUIRE(main_loops.size() == 1);
    ++(main_loops.contains(MainLoop::sm90) ? hopper : portable);
  }
  CHECK(hopper > 0);
  CHECK(portable > 0);
  // The sm90 one if any of its configurations is legal.
  const NormalProblem unaligned = normalise({.m = 1537, .n = 1793, .k = 1001});
  CHECK(rank(unaligned, h200, 1, {.batch_invariant = true}).at(0).config.main_loop == MainLoop::sm90);
  CHECK(rank(unaligned, h200, 1, {.batch_invariant = true, .workspace_bytes = 0}).at(0).config.main_loop ==
        MainLoop::sm80);
  CHECK(rank(unaligned, h200, 1, {.batch_invariant = true, .sms = 64}).at(0).config.main_loop == MainLoop::sm80);
}

TEST_CASE("Two stages find what ranking every candidate finds under constraints, too", "[constraints][ranking]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  double regrets = 0;
  int problems = 0;
  while (problems < 80) {
    // Every other one has few tiles and a deep k, so that the best of all are those that cut it.
    const NormalProblem deep =
        normalise({.m = random.between(1, 64) * 8, .n = random.between(1, 64) * 8, .k = random.between(256, 2048) * 8});
    const Problem problem = problems % 2 == 0 ? random_problem(random) : deep;
    const Constraints constraints =
        problems % 4 == 1 ? Constraints{.batch_invariant = true} : random_constraints(random, h200);
    double best = std::numeric_limits<double>::infinity();
    for (const RankedConfig& ranked : rank(normalise(problem), h200, 0, constraints)) {
      if (ranked.config.main_loop == MainLoop::sm90) best = std::min(best, ranked.predicted_us);
    }
    if (std::isinf(best)) continue;
    ++problems;
    CAPTURE(to_string(problem), to_string(constraints));
    const double found = rank(normalise(problem), h200, 12, constraints).at(0).predicted_us;
    CHECK(found <= 1.1 * best);
    regrets += std::log(found / best);
  }
  CHECK(std::exp(regrets / problems) <= 1.005);
}

TEST_CASE("Candidates for fewer SMs are those of a smaller device", "[constraints][ranking]") {
  const NormalProblem problem = normalise({.m = 4096, .n = 4096, .k = 4096});
  RatedDevice smaller = h200;
  smaller.sm_count = 64;
  const RankedConfig best = rank(problem, h200, 1, {.sms = 64}).at(0);
  CHECK(best.config == rank(problem, smaller, 1).at(0).config);
  CHECK(best.predicted_us == rank(problem, smaller, 1).at(0).predicted_us);
  CHECK(launch_shape(problem, best.config).grid == 64);
}

TEST_CASE("A batch-invariant choice is left with the workspace of the one that decides the main loop",
          "[constraints][ranking]") {
  const auto seed = test_seed();
  CAPTURE(seed);
  Random random(seed);
  for (int i = 0; i < 40; ++i) {  // packed in slabs, which other tiles may have larger ones of
    const NormalProblem problem = normalise({.m = random.between(100, 3000),
                                             .n = random.between(100, 6000),
                                             .k = random.between(30000, 90000),
                                             .b = {.layout = Layout::column_major}});
    const ConstraintFilter filter({.batch_invariant = true}, problem, h200);
    REQUIRE(filter.batch_invariant_typical());
    const Constraints constraints{
        .batch_invariant = true,
        .workspace_bytes = launch_shape(problem, *filter.batch_invariant_typical()).workspace_bytes()};
    CAPTURE(to_string(problem), to_string(constraints));
    const std::vector<RankedConfig> ranked = rank(problem, h200, 12, constraints);
    REQUIRE(!ranked.empty());
    for (const RankedConfig& choice : ranked) {
      CHECK(choice.config.main_loop == MainLoop::sm90);
      CHECK(why_illegal(choice.config, problem, h200).empty());
      CHECK_FALSE(broken_by(choice.config, problem, constraints).any());
      CHECK(choice.predicted_us > 0);
    }
  }
}

TEST_CASE("SMs that the device has not are refused", "[constraints][context]") {
  const TemporaryDirectory cache;
  for (const int sms : {-1, 5}) {
    const auto make = [&] {
      Context({.device = Device::emulator, .constraints = {.sms = sms}, .cache_dir = cache.path().string()});
    };
    CHECK_THAT(refusal(ErrorCode::invalid_option, make),
               ContainsSubstring("sms=" + std::to_string(sms)) && ContainsSubstring("give 1 to 4"));
    CHECK_FALSE(
        refusal(ErrorCode::invalid_option, [&] { rank(shape(64, 64, 64), h200, 1, {.sms = 132 * sms}); }).empty());
  }
  CHECK_NOTHROW(Context({.device = Device::emulator, .constraints = {.sms = 4}, .cache_dir = cache.path().string()}));
}

TEST_CASE("Constraints that nothing keeps to are one clear error", "[constraints][context]") {
  const TemporaryDirectory cache;
  Context context({.device = Device::compile_only,
                   .architecture = "sm_80",
                   .constraints = {.sms = 3},
                   .cache_dir = cache.path().string()});
  // Tiles x k-blocks of a grid are less than 2^30.
  const Problem giant{.m = 1 << 18, .n = 1 << 18, .k = 1 << 18};
  CHECK_THAT(refusal(ErrorCode::invalid_option, [&] { context.plan(giant); }),
             ContainsSubstring("sms=3") && ContainsSubstring("allow more SMs"));
}

TEST_CASE("A Context's choices keep to its constraints, and it tunes and remembers within them",
          "[constraints][context]") {
  const TemporaryDirectory cache;
  // Deep, so that cutting k pays: with f64, which has few kernels.
  const Problem problem{.m = 40, .n = 72, .k = 2000, .a = {f64}, .b = {f64}, .d = {f64}};
  const auto context_with = [&](const Constraints& constraints, Tuning tuning = Tuning::cached) {
    return Context({.device = Device::emulator,
                    .architecture = "sm_80",
                    .tuning = tuning,
                    .tuning_budget_seconds = 1,
                    .constraints = constraints,
                    .cache_dir = cache.path().string()});
  };
  const auto breaks = [&](const std::vector<Plan>& plans, const Constraints& constraints) {
    return std::count_if(plans.begin(), plans.end(), [&](const Plan& plan) {
      return broken_by(plan.config, normalise(plan.problem), constraints).any();
    });
  };
  const std::vector<Plan> free = context_with({}).candidates(problem);
  for (const Constraints& constraints :
       {Constraints{.batch_invariant = true}, Constraints{.workspace_bytes = 0}, Constraints{.sms = 1}}) {
    CAPTURE(to_string(constraints));
    CHECK(breaks(free, constraints) > 0);
    Context context = context_with(constraints);
    const std::vector<Plan> candidates = context.candidates(problem);
    CHECK(!candidates.empty());
    CHECK(breaks(candidates, constraints) == 0);
    CHECK(context.plan(problem).constraints == constraints);
    CHECK_THAT(context.plan(problem).explain(), ContainsSubstring("constraints     " + to_string(constraints)));
    const Plan pinned = context.plan(problem, free.back().config);
    CHECK(pinned.config == free.back().config);
    CHECK(pinned.constraints == Constraints{});

    CHECK(context.plan(problem).source == PlanSource::model);
    const TuneReport report = context.tune(problem);
    for (const TunedCandidate& candidate : report.candidates)
      CHECK_FALSE(broken_by(candidate.config, normalise(problem), constraints).any());
    CHECK(context.plan(problem).source == PlanSource::exact);
    CHECK(context_with(constraints).plan(problem).config == report.plan.config);
    CHECK(context_with({}).plan(problem).source == PlanSource::model);
    CHECK(context_with({.workspace_bytes = 77}).plan(problem).source == PlanSource::model);
  }
  CHECK_THAT(context_with({}).plan(problem).explain(), !ContainsSubstring("constraints "));
}

TEST_CASE("Calls under constraints compute what they should", "[constraints][emulator]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  for (const Constraints& constraints :
       {Constraints{.workspace_bytes = 0}, Constraints{.sms = 1}, Constraints{.batch_invariant = true, .sms = 2}}) {
    ContextOptions options = GemmDevice::emulator(test_seed());
    options.constraints = constraints;
    GemmDevice device(options);
    for (const Problem& problem :
         {Problem{.m = 150, .n = 200, .k = 200}, Problem{.m = 33, .n = 65, .k = 301, .d = {f32}}}) {
      GemmCase gemm = plain_case(normalise(problem), {}, {2, 2, 4, 4});
      const Plan plan = device.context().plan(gemm.problem);
      gemm.config = plan.config;
      CAPTURE(to_string(gemm), to_string(constraints));
      CHECK_FALSE(broken_by(gemm.config, normalise(gemm.problem), constraints).any());
      CHECK(device.context().workspace_size(gemm.problem) <= constraints.workspace_bytes);
      CHECK(run_and_check(device, gemm, Fill::normal, test_seed()) == "");
    }
  }
}
