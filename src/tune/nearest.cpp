#include "tune/nearest.hpp"

#include "util/number_text.hpp"

namespace jitgemm {

std::optional<RankedConfig> judge_nearest(TuningLookup& found, const Planner& planner, std::string* why) {
  if (found.match != Match::nearest) return std::nullopt;
  const auto best = planner.ranked(1);
  if (best.empty()) return std::nullopt;
  found.expected_regret = planner.predict_us(found.config) / best[0].predicted_us;
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
