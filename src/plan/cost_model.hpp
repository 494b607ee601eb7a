#pragma once

#include "jitgemm/plan.hpp"
#include "kernels/legality.hpp"
#include "plan/rated_device.hpp"

namespace jitgemm {

/// The time of one launch with a cold L2, from device facts and DeviceRates; no measurement.
PredictedTime predict(const KernelConfig& config, const NormalProblem& problem, const RatedDevice& device);
double predict_us(const KernelConfig& config, const NormalProblem& problem, const RatedDevice& device);

/// Of that, what packing operands takes; 0 if the configuration packs none. Configurations that pack the same take the
/// same.
double predict_packing_us(const KernelConfig& config, const NormalProblem& problem, const DeviceInfo& device);

}  // namespace jitgemm
