#include "plan/ranking.hpp"

#include <algorithm>

#include "kernels/packing.hpp"
#include "plan/candidates.hpp"
#include "plan/constraints.hpp"
#include "plan/cost_model.hpp"
#include "plan/family.hpp"
#include "plan/shortlist.hpp"

namespace jitgemm {
namespace {

using Candidates = std::vector<KernelConfig>;

void predict_each(const Candidates& configs, const NormalProblem& problem, const RatedDevice& device,
                  const ConstraintFilter* filter, std::vector<RankedConfig>& ranked) {
  for (const KernelConfig& config : configs)
    if (!filter || filter->allows(config)) ranked.push_back({config, predict_us(config, problem, device)});
}

/// The candidates that are allowed, or so many of the best of them.
std::vector<RankedConfig> predict_all(const NormalProblem& problem, const RatedDevice& device, std::size_t limit,
                                      const ConstraintFilter* filter = nullptr) {
  std::vector<RankedConfig> ranked;
  if (limit > 0 && !device.emulated) {
    for (const PlanFamily* family : plan_families) {
      if (family->shortlist) ranked = family->shortlist(problem, device, limit, filter);
      if (ranked.empty()) continue;
      // A family that has a short list is the faster one, unless it has to pack: what needs no packing may then be.
      if (std::ranges::all_of(ranked, [](const RankedConfig& r) { return packs(r.config); })) {
        for (const PlanFamily* other : plan_families)
          if (other != family) predict_each(other->candidates(problem, device), problem, device, filter, ranked);
      }
      return ranked;
    }
  }
  predict_each(candidates(problem, device), problem, device, filter, ranked);
  return ranked;
}

std::vector<RankedConfig> predict_all_within(const NormalProblem& problem, const RatedDevice& whole, std::size_t limit,
                                             const Constraints& constraints) {
  const RatedDevice device = part_of(whole, constraints);
  const ConstraintFilter filter(constraints, problem, device);
  std::vector<RankedConfig> ranked = predict_all(problem, device, limit, &filter);
  if (const auto& config = filter.batch_invariant_typical(); ranked.empty() && config)
    predict_each({*config}, problem, device, nullptr, ranked);
  return ranked;
}

}  // namespace

std::vector<RankedConfig> rank(const NormalProblem& problem, const RatedDevice& device, std::size_t limit,
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
