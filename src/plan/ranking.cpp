#include "plan/ranking.hpp"

#include <algorithm>

#include "plan/candidates.hpp"
#include "plan/constraints.hpp"
#include "plan/cost_model.hpp"
#include "plan/family.hpp"
#include "plan/shortlist.hpp"

namespace jitgemm {
namespace {

/// The candidates that are allowed, or so many of the best of them.
std::vector<RankedConfig> predict_all(const Problem& problem, const RatedDevice& device, std::size_t limit,
                                      const ConstraintFilter* filter = nullptr) {
  std::vector<RankedConfig> ranked;
  for (const PlanFamily* family : plan_families) {
    if (limit > 0 && !device.emulated && family->shortlist) ranked = family->shortlist(problem, device, limit, filter);
    if (!ranked.empty()) return ranked;
  }
  for (const KernelConfig& config : candidates(problem, device)) {
    if (!filter || filter->allows(config)) ranked.push_back({config, predict_us(config, problem, device)});
  }
  return ranked;
}

std::vector<RankedConfig> predict_all_within(const Problem& problem, const RatedDevice& whole, std::size_t limit,
                                             const Constraints& constraints) {
  const RatedDevice device = part_of(whole, constraints);
  const ConstraintFilter filter(constraints, problem, device);
  std::vector<RankedConfig> ranked = predict_all(problem, device, limit, &filter);
  if (const auto& config = filter.batch_invariant_typical(); ranked.empty() && config)
    ranked.push_back({*config, predict_us(*config, problem, device)});
  return ranked;
}

}  // namespace

std::vector<RankedConfig> rank(const Problem& problem, const RatedDevice& device, std::size_t limit,
                               const Constraints& constraints) {
  std::vector<RankedConfig> ranked = constrain(constraints) ? predict_all_within(problem, device, limit, constraints)
                                                            : predict_all(problem, device, limit);
  std::stable_sort(ranked.begin(), ranked.end(), sooner);
  if (limit == 0 || limit >= ranked.size()) return ranked;
  ranked = shortlist(ranked, limit, [](const KernelConfig&) { return true; });
  std::stable_sort(ranked.begin(), ranked.end(), sooner);
  return ranked;
}

}  // namespace jitgemm
