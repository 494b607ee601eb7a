#pragma once

#include <vector>

#include "kernels/legality.hpp"

namespace jitgemm {

/// Every configuration that is worth ranking for a normalised problem: those of each family, in the order of
/// plan_families.
std::vector<KernelConfig> candidates(const NormalProblem& problem, const DeviceInfo& device);

/// Of one kernel, the legal configurations that are worth ranking: what is compiled in is as in `kernel`; schedule,
/// grid and splits, what is packed, and a cluster that the launch chooses, are the problem's. Empty if the kernel
/// cannot compute it.
std::vector<KernelConfig> refits(const KernelConfig& kernel, const NormalProblem& problem, const DeviceInfo& device);

}  // namespace jitgemm
