#pragma once

#include <vector>

#include "kernels/legality.hpp"

namespace jitgemm {

/// Every configuration that is worth ranking for a normalised problem: those of each family, in the order of
/// plan_families.
std::vector<KernelConfig> candidates(const NormalProblem& problem, const DeviceInfo& device);

}  // namespace jitgemm
