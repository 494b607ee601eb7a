#include "plan/candidates.hpp"

#include "core/groups.hpp"
#include "kernels/family.hpp"
#include "kernels/launch_shape.hpp"
#include "kernels/packing.hpp"
#include "plan/family.hpp"

namespace jitgemm {

std::vector<KernelConfig> candidates(const NormalProblem& problem, const DeviceInfo& device) {
  std::vector<KernelConfig> all;
  for (const PlanFamily* family : plan_families) {
    const std::vector<KernelConfig> some = family->candidates(problem, device);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

std::vector<KernelConfig> refits(const KernelConfig& kernel, const NormalProblem& problem, const DeviceInfo& device) {
  KernelConfig literal = compiled_part(kernel);
  if (has_groups(problem)) literal.schedule = Schedule::persistent;
  if (family_of(kernel).takes_packed && !has_groups(problem)) {
    literal.pack_a = needs_packing_a(problem);
    literal.pack_b = needs_packing_b(problem);
  }
  const PlanFamily& family = plan_family_of(kernel.main_loop);
  std::vector<KernelConfig> all;
  const bool chooses = kernel.cluster_at_launch && family.clusters;
  for (const KernelConfig& whole : chooses ? family.clusters(literal) : std::vector{literal}) {
    if (!why_illegal(whole, problem, device).empty()) continue;
    all.push_back(whole);
    KernelConfig tile = whole;
    tile.schedule = Schedule::data_parallel;
    for (const KernelConfig& config : family.schedules(tile, problem, device))
      if (compiled_part(config) == compiled_part(literal) && config != whole &&
          why_illegal(config, problem, device).empty())
        all.push_back(config);
  }
  return all;
}

}  // namespace jitgemm
