#include "plan/candidates.hpp"

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

}  // namespace jitgemm
