#pragma once

#include "jitgemm/plan.hpp"
#include "kernels/legality.hpp"

namespace jitgemm {

/// What a launch without packing takes on the emulator, with any main loop: what it executes, on one core. Rough: good
/// for choosing what executes least.
PredictedTime predict_emulated(const KernelConfig& config, const NormalProblem& problem);
/// Of packing, the bytes of the copies.
double predict_emulated_packing_us(double bytes);

}  // namespace jitgemm
