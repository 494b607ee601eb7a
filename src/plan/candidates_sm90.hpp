#pragma once

#include <vector>

#include "core/device_info.hpp"
#include "jitgemm/kernel_config.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

/// The configurations of the Hopper main loop that are worth ranking for a normalised problem: each way to share a tile's rows
/// among warpgroups, with the clusters and the tile widths that fill whole waves of the device. Operands that it takes only packed are packed.
std::vector<KernelConfig> candidates_sm90(const Problem& problem, const DeviceInfo& device);

}  // namespace jitgemm
