// What Chooser chooses, and measures, where kernels at hand are to serve (ContextOptions::at_hand_within).
#include <fmt/core.h>

#include "chooser.hpp"
#include "tune/nearest.hpp"
#include "tune/tuned_shape.hpp"
#include "util/log.hpp"

namespace jitgemm {

Choice Chooser::bounded(const Planner& planner, const NormalProblem& shape, const Choice& choice) {
  if (!is_bounded()) return choice;
  const bool at_hand = at_hand_.has(planner.problem(), choice.config);
  if (at_hand && choice.tuned) return choice;
  const double choice_us = planner.predict_us(choice.config);
  const auto predicted = at_hand_.best(planner, {.most_us = options_.at_hand_within * choice_us});
  if (const auto measured = measured_at_hand(planner, shape, choice, predicted)) return *measured;
  if (at_hand) return choice;
  if (!predicted) {
    logger().info("{}: no kernel at hand is expected to take less than {} times as long as {}, which is compiled",
                  to_string(planner.problem()), options_.at_hand_within, to_string(choice.config));
    return choice;
  }
  const double times = predicted->predicted_us / choice_us;
  return {.config = predicted->config,
          .source = PlanSource::at_hand,
          .why = fmt::format("of the kernels at hand; expected to take {:.2f} times as long as {}, which is not", times,
                             to_string(choice.config)),
          .predicted_us = predicted->predicted_us,
          .expected_regret = times};
}

std::optional<Choice> Chooser::measured_at_hand(const Planner& planner, const NormalProblem& shape,
                                                const Choice& choice, const std::optional<RankedConfig>& predicted) {
  if (options_.tuning == Tuning::off) return std::nullopt;
  const double choice_us = planner.predict_us(choice.config);
  const bool compares = choice.tuned && choice.measured_us > 0;
  const auto may_serve = [&](const KernelConfig& config) {
    return planner.why_not(config).empty() && at_hand_.has(planner.problem(), config);
  };
  const auto made = [&](const KernelConfig& config, double measured_us, const std::string& why) {
    const double us = planner.predict_us(config);
    return Choice{.config = config,
                  .source = PlanSource::at_hand,
                  .why = why + ", of the kernels at hand",
                  .predicted_us = us,
                  .measured_us = measured_us,
                  .expected_regret = us / choice_us};
  };

  const NormalProblem tuned = tuned_shape(shape, options_.bucket_m);
  const TuningLookup found = at_hand_db_.find(tuned, device_, options_.constraints);
  if (found.match == Match::exact && may_serve(found.config)) {
    Choice best = made(found.config, takes_as_long(tuned, shape) ? found.measured_us : 0, found.why);
    const double times = compares ? found.measured_us / choice.measured_us : best.expected_regret;
    if (times > options_.at_hand_within) return choice;
    best.spread = found.spread;
    best.runners_up = found.runners_up;
    best.tuned = true;
    return best;
  }
  // Those of the choice's own measurement, where no other is expected to be faster than they were.
  for (const MeasuredConfig& second : choice.runners_up) {
    if (!compares || !may_serve(second.config)) continue;
    const double times = second.median_us / choice.measured_us;
    if (times > options_.at_hand_within || (predicted && times * choice_us > predicted->predicted_us)) break;
    return made(second.config, second.median_us, "a runner-up, " + choice.why);
  }
  if (found.match == Match::nearest && predicted && may_serve(found.config) &&
      planner.predict_us(found.config) <= most_expected_regret * predicted->predicted_us) {
    return made(found.config, 0, found.why);
  }
  return std::nullopt;
}

std::vector<RankedConfig> Chooser::to_measure(const Planner& planner, std::size_t count) {
  if (!is_bounded()) return planner.ranked(count);
  const RankedConfig free = [&] {
    const Choice choice = free_choice(planner, planner.problem());
    return RankedConfig{choice.config, planner.predict_us(choice.config)};
  }();
  auto ranked = at_hand_.ranked(planner, count, {.most_us = options_.at_hand_within * free.predicted_us});
  if (ranked.empty()) ranked.push_back(free);
  return ranked;
}

}  // namespace jitgemm
