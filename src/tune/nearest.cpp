#include "tune/nearest.hpp"

#include "plan/constraints.hpp"
#include "plan/cost_model.hpp"
#include "plan/ranking.hpp"
#include "util/number_text.hpp"

namespace jitgemm {

std::optional<RankedConfig> judge_nearest(TuningLookup& found, const NormalProblem& problem, const RatedDevice& device,
                                          std::string* why, const Constraints& constraints) {
  if (found.match != Match::nearest) return std::nullopt;
  const auto best = rank(problem, device, 1, constraints);
  if (best.empty()) return std::nullopt;
  found.expected_regret = predict_us(found.config, problem, part_of(device, constraints)) / best[0].predicted_us;
  const std::string times = fixed_text(found.expected_regret, 2);
  if (found.expected_regret <= most_expected_regret) {
    found.why += ", expected to take " + times + " times the cost model's best";
    return std::nullopt;
  }
  *why = "best predicted by the cost model, which expects what was tuned to take " + times + " times that (" +
         found.why + ")";
  return best[0];
}

}  // namespace jitgemm
