#pragma once

#include <optional>
#include <string>

#include "core/problem.hpp"
#include "jitgemm/constraints.hpp"
#include "jitgemm/kernel_config.hpp"
#include "plan/rated_device.hpp"

namespace jitgemm {

inline bool constrain(const Constraints& constraints) { return constraints != Constraints{}; }

/// The device with only the SMs that calls may use. Throws Error{invalid_option} if it has not so many.
DeviceInfo part_of(const DeviceInfo& device, const Constraints& constraints);
RatedDevice part_of(const RatedDevice& device, const Constraints& constraints);

/// Which configurations keep to constraints, for one normalised problem on a device.
class ConstraintFilter {
 public:
  ConstraintFilter(const Constraints& constraints, const NormalProblem& problem, const DeviceInfo& device);

  /// Empty if the (legal) configuration keeps to the constraints, else what it breaks.
  std::string why_not(const KernelConfig& config) const;
  bool allows(const KernelConfig& config) const { return why_not(config).empty(); }

  /// Batch-invariant choices have one main loop a problem: the first family's of which this configuration, the family's
  /// typical one, keeps to the constraints. So it does not depend on what is a candidate on a device. nullopt: it is
  /// that of the family that computes everything.
  const std::optional<KernelConfig>& batch_invariant_typical() const { return batch_invariant_typical_; }

 private:
  std::string why_too_much(const KernelConfig& config) const;

  Constraints constraints_;
  const NormalProblem& problem_;
  std::optional<MainLoop> batch_invariant_loop_;
  std::optional<KernelConfig> batch_invariant_typical_;
};

}  // namespace jitgemm
