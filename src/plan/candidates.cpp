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
  if (!why_illegal(literal, problem, device).empty()) return {};
  KernelConfig tile = literal;
  tile.schedule = Schedule::data_parallel;
  std::vector<KernelConfig> all = plan_family_of(kernel.main_loop).schedules(tile, problem, device);
  std::erase_if(all, [&](const KernelConfig& config) {
    return compiled_part(config) != compiled_part(literal) || config == literal ||
           !why_illegal(config, problem, device).empty();
  });
  all.insert(all.begin(), literal);
  return all;
}

}  // namespace jitgemm
