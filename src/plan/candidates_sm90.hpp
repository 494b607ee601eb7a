#pragma once

#include <vector>

#include "core/device_info.hpp"
#include "jitgemm/kernel_config.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

/// SMs that blocks can occupy at once when only whole clusters of a size do: those of a cluster share a GPC, whose number of SMs
/// is not a multiple of 4 (an H200 with 132 SMs takes 66 clusters of 2, 30 of 4 and 15 of 8).
int usable_sms(int cluster_size, const DeviceInfo& device);

/// The configurations of the Hopper main loop that are worth ranking for a normalised problem: each way to share a tile's rows
/// among warpgroups, with the clusters and the tile widths that fill whole waves of the device. Operands that it takes only packed are packed.
std::vector<KernelConfig> candidates_sm90(const Problem& problem, const DeviceInfo& device);

}  // namespace jitgemm
