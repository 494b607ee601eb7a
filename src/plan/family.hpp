#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "core/problem.hpp"
#include "jitgemm/kernel_config.hpp"
#include "jitgemm/plan.hpp"
#include "plan/constraints.hpp"
#include "plan/ranking.hpp"
#include "plan/rated_device.hpp"

namespace jitgemm {

/// What it takes to choose among the kernels of one family; what these are is in kernels/family.hpp. Problems are
/// normalised.
struct PlanFamily {
  MainLoop main_loop;
  /// Every legal configuration that is worth ranking.
  std::vector<KernelConfig> (*candidates)(const NormalProblem& problem, const DeviceInfo& device);
  /// The ways to deal out the work of a configuration's tile that are worth ranking, legal or not.
  std::vector<KernelConfig> (*schedules)(const KernelConfig& tile, const NormalProblem& problem,
                                         const DeviceInfo& device);
  /// Of a kernel whose launch chooses the cluster, its tile in each that is worth ranking, legal or not. Null: no
  /// launch of the family chooses any.
  std::vector<KernelConfig> (*clusters)(const KernelConfig& kernel);
  /// The time of one launch that packs nothing, on a device that is not emulated.
  PredictedTime (*predict)(const KernelConfig& config, const NormalProblem& problem, const RatedDevice& device);
  /// So many of the best candidates, of those that the filter allows, without a prediction of each; null: there is no
  /// shorter way.
  std::vector<RankedConfig> (*shortlist)(const NormalProblem& problem, const RatedDevice& device, std::size_t limit,
                                         const ConstraintFilter* filter);
  /// A configuration that cuts no tile and is legal for nearly all that any of the family is legal for; with `sms`, on
  /// so many of them. Null: the family computes every problem that any computes.
  KernelConfig (*typical)(const NormalProblem& problem, int sms);
  /// The rates that predict() goes by, those that calibration may change.
  std::vector<double*> (*fitted_rates)(DeviceRates& rates);
};

/// Throws Error{internal} for what is no enumerator.
const PlanFamily& plan_family_of(MainLoop main_loop);

extern const PlanFamily sm80_plan, sm90_plan;
/// In order of preference: where a family has a candidate, no later one has been the fastest (0 of 800 tuned shapes for
/// these two).
inline const std::array plan_families{&sm90_plan, &sm80_plan};

}  // namespace jitgemm
