#include "plan/constraints.hpp"

#include "core/out_of_memory.hpp"
#include "jitgemm/error.hpp"
#include "kernels/launch_shape.hpp"
#include "kernels/legality.hpp"
#include "kernels/packing.hpp"
#include "plan/family.hpp"

namespace jitgemm {
namespace {

bool splits_k(const KernelConfig& c) {
  return c.cluster_k > 1 || (c.schedule != Schedule::data_parallel && c.schedule != Schedule::persistent);
}

std::string text_of(const Constraints& constraints) {
  constexpr Constraints none;
  std::string text;
  const auto add = [&text](const std::string& word) { text += (text.empty() ? "" : " ") + word; };
  if (constraints.batch_invariant) add("batch_invariant");
  if (constraints.workspace_bytes != none.workspace_bytes)
    add("workspace_bytes=" + std::to_string(constraints.workspace_bytes));
  if (constraints.sms != none.sms) add("sms=" + std::to_string(constraints.sms));
  return text;
}

}  // namespace

std::string to_string(const Constraints& constraints) {
  return with_memory_errors([&] { return text_of(constraints); });
}

DeviceInfo part_of(const DeviceInfo& device, const Constraints& constraints) {
  if (constraints.sms < 0 || constraints.sms > device.sm_count) {
    const std::string count = std::to_string(device.sm_count);
    throw Error(ErrorCode::invalid_option, "sms=" + std::to_string(constraints.sms) + " where " + device.name +
                                               " has " + count + "; give 1 to " + count + ", or 0 for all");
  }
  DeviceInfo part = device;
  if (constraints.sms > 0) part.sm_count = constraints.sms;
  return part;
}

RatedDevice part_of(const RatedDevice& device, const Constraints& constraints) {
  return {part_of(static_cast<const DeviceInfo&>(device), constraints), device.rates};
}

ConstraintFilter::ConstraintFilter(const Constraints& constraints, const NormalProblem& problem,
                                   const DeviceInfo& device)
    : constraints_(constraints), problem_(problem) {
  if (!constraints.batch_invariant) return;
  for (const PlanFamily* family : plan_families) {
    batch_invariant_loop_ = family->main_loop;
    if (!family->typical) return;
    const KernelConfig typical = family->typical(problem, constraints.sms);
    if (!why_illegal(typical, problem, device).empty() || !why_too_much(typical).empty()) continue;
    batch_invariant_typical_ = typical;
    return;
  }
}

std::string ConstraintFilter::why_not(const KernelConfig& config) const {
  if (constraints_.batch_invariant) {
    if (splits_k(config)) return "a batch-invariant choice does not split k";
    if (config.main_loop != batch_invariant_loop_)
      return "a batch-invariant choice has the " + std::string(to_string(*batch_invariant_loop_)) + " main loop here";
  }
  return why_too_much(config);
}

std::string ConstraintFilter::why_too_much(const KernelConfig& config) const {
  if (constraints_.sms == 0 && constraints_.workspace_bytes == Constraints{}.workspace_bytes) return {};
  if (constraints_.sms > 0 && packs(config)) return "the packing kernel knows no limit of SMs";
  if (std::string why = why_beyond_integers(config, problem_); !why.empty()) return why;
  const LaunchShape shape = launch_shape(problem_, config);
  if (shape.workspace_bytes() > constraints_.workspace_bytes) {
    return "it needs " + std::to_string(shape.workspace_bytes()) + " bytes of workspace where " +
           std::to_string(constraints_.workspace_bytes) + " are allowed";
  }
  if (constraints_.sms > 0 && shape.grid > constraints_.sms) {
    return "its " + std::to_string(shape.grid) + " thread blocks may take more than " +
           std::to_string(constraints_.sms) + " SMs";
  }
  return {};
}

}  // namespace jitgemm
