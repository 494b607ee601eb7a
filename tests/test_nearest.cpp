// Answers from a neighbour's record, and how good they are expected to be.
#include "tune/nearest.hpp"

#include "catch.hpp"
#include "jitgemm/jitgemm.hpp"
#include "plan/cost_model.hpp"
#include "plan/ranking.hpp"
#include "sandbox.hpp"
#include "tuning_samples.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// What a Context answers that knows this configuration for m=n=k=4096.
Plan plan_with(const KernelConfig& config, const NormalProblem& problem) {
  const TemporaryDirectory directory;
  TuningRecord record = record_of(shape(4096, 4096, 4096));
  record.config = config;
  TuningDb(directory.path() / "tuning.jsonl").add(record);
  return Context({.device = Device::compile_only,
                  .architecture = "sm_90a",
                  .tuning = Tuning::cached,
                  .cache_dir = directory.path().string()})
      .plan(problem);
}

const NormalProblem tuned = shape(4096, 4096, 4096), neighbour = shape(4096, 4096, 5120);
const KernelConfig slow = parse_kernel_config("sm80 32x32x32 group_m=0 stages=2 warps=2 schedule=data_parallel");

}  // namespace

TEST_CASE("A neighbour's good configuration is taken, with what it is expected to cost", "[nearest]") {
  const KernelConfig best = rank(neighbour, h200, 1).at(0).config;
  const Plan plan = plan_with(best, neighbour);
  CHECK(plan.source == PlanSource::nearest);
  CHECK(plan.config == best);
  CHECK(plan.expected_regret == 1);
  CHECK_THAT(plan.why, ContainsSubstring("nearest is m=4096 n=4096 k=4096 at distance 0.32") &&
                           ContainsSubstring("expected to take 1.00 times the cost model's best"));
}

TEST_CASE("A neighbour's configuration that is expected to be slow is passed over for the cost model's", "[nearest]") {
  const Plan plan = plan_with(slow, neighbour);
  const RankedConfig best = rank(neighbour, h200, 1).at(0);
  CHECK(plan.source == PlanSource::model);
  CHECK(plan.config == best.config);
  CHECK(plan.predicted.us == best.predicted_us);
  CHECK(plan.expected_regret == 0);
  CHECK_THAT(plan.why, ContainsSubstring("best predicted by the cost model") &&
                           ContainsSubstring("times that (nearest is m=4096"));
  const Plan exact = plan_with(slow, tuned);  // what was measured counts for more than what is predicted
  CHECK(exact.source == PlanSource::exact);
  CHECK(exact.config == slow);
  CHECK(exact.expected_regret == 0);
}

TEST_CASE("No nearest answer is expected to cost more than the bound", "[nearest]") {
  int taken = 0, passed_over = 0;
  const auto configs = rank(tuned, h200);
  for (std::size_t i = 0; i < configs.size(); i += configs.size() / 40) {
    TuningLookup found{Match::nearest, configs[i].config, 0, 0, "nearest"};
    if (!why_illegal(found.config, neighbour, h200).empty()) continue;
    std::string why;
    const auto instead = judge_nearest(found, Planner(neighbour, h200, {}), &why);
    const double best = rank(neighbour, h200, 1).at(0).predicted_us;
    CHECK(found.expected_regret == predict_us(found.config, neighbour, h200) / best);
    CHECK(instead.has_value() == (found.expected_regret > most_expected_regret));
    CHECK(why.empty() != instead.has_value());
    if (instead) CHECK(instead->predicted_us == best);
    ++(instead ? passed_over : taken);
  }
  CHECK(taken > 0);
  CHECK(passed_over > 0);
}
