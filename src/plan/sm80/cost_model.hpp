#pragma once

#include "jitgemm/plan.hpp"
#include "kernels/legality.hpp"
#include "plan/rated_device.hpp"

namespace jitgemm {

/// What one launch takes with the portable main loop, which packs nothing.
PredictedTime predict_sm80(const KernelConfig& config, const NormalProblem& problem, const RatedDevice& device);

}  // namespace jitgemm
