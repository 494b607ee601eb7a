#include "plan/planner.hpp"

#include <algorithm>

#include "kernels/legality.hpp"
#include "kernels/packing.hpp"
#include "plan/candidates.hpp"
#include "plan/cost_model.hpp"
#include "plan/family.hpp"
#include "plan/shortlist.hpp"

namespace jitgemm {

std::string Planner::why_not(const KernelConfig& config) const {
  if (std::string broken = why_illegal(config, problem_, part_); !broken.empty()) return broken;
  return filter_.why_not(config);
}

double Planner::predict_us(const KernelConfig& config) const { return jitgemm::predict_us(config, planned(), part_); }

std::vector<KernelConfig> Planner::refits(const KernelConfig& kernel) const {
  std::vector<KernelConfig> configs = jitgemm::refits(kernel, planned(), part_);
  if (constrained_) std::erase_if(configs, [this](const KernelConfig& config) { return !filter_.allows(config); });
  return configs;
}

void Planner::add(const std::vector<KernelConfig>& configs, std::vector<RankedConfig>& ranked) const {
  for (const KernelConfig& config : configs)
    if (!constrained_ || filter_.allows(config)) ranked.push_back({config, predict_us(config)});
}

/// The candidates that are allowed, or so many of the best of them, in no order.
std::vector<RankedConfig> Planner::predicted(std::size_t limit) const {
  std::vector<RankedConfig> ranked;
  if (limit > 0 && !part_.emulated) {
    for (const PlanFamily* family : plan_families) {
      if (family->shortlist) ranked = family->shortlist(planned(), part_, limit, constrained_ ? &filter_ : nullptr);
      if (ranked.empty()) continue;
      // A family that has a short list is the faster one, unless it has to pack: what needs no packing may then be.
      if (std::ranges::all_of(ranked, [](const RankedConfig& r) { return packs(r.config); })) {
        for (const PlanFamily* other : plan_families)
          if (other != family) add(other->candidates(planned(), part_), ranked);
      }
      return ranked;
    }
  }
  add(candidates(planned(), part_), ranked);
  return ranked;
}

std::vector<RankedConfig> Planner::ranked(std::size_t limit) const {
  std::vector<RankedConfig> ranked = predicted(limit);
  if (expected_)  // of which there may be fewer tiles
    std::erase_if(ranked, [this](const RankedConfig& r) { return !why_illegal(r.config, problem_, part_).empty(); });
  if (const auto& config = filter_.batch_invariant_typical(); ranked.empty() && config)
    ranked.push_back({*config, predict_us(*config)});
  std::stable_sort(ranked.begin(), ranked.end(), sooner);
  if (limit == 0 || limit >= ranked.size()) return ranked;
  ranked = shortlist(ranked, limit, [](const KernelConfig&) { return true; });
  std::stable_sort(ranked.begin(), ranked.end(), sooner);
  return ranked;
}

std::vector<RankedConfig> rank(const NormalProblem& problem, const RatedDevice& device, std::size_t limit,
                               const Constraints& constraints) {
  if (!constrain(constraints)) return Planner(problem, device, constraints).ranked(limit);
  const RatedDevice part = part_of(device, constraints);
  return Planner(problem, part, constraints).ranked(limit);
}

}  // namespace jitgemm
