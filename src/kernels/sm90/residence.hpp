#pragma once

#include <cstdint>

#include "core/device_info.hpp"
#include "jitgemm/kernel_config.hpp"
#include "kernels/kernel_problem.hpp"

namespace jitgemm {

/// Whether two blocks of such clusters are to share an SM. Clusters of 8 that do were the fastest on none of 54 shapes,
/// and took up to 2.3 times as long as predicted (tools/results/NOTES.md, 24).
inline bool may_share_sm(int cluster_size) { return cluster_size < 8; }

/// SMs that blocks can occupy at once when only whole clusters of a size do: those of a cluster share a GPC, whose
/// number of SMs is not a multiple of 4 (an H200 with 132 SMs takes 66 clusters of 2, 30 of 4 and 15 of 8). Where the
/// device does not say, as that one.
int usable_sms(int cluster_size, const DeviceInfo& device);

/// Whether an SM's shared memory has room for two blocks.
bool two_fit(const KernelConfig& config, const KernelProblem& kernel_problem, const DeviceInfo& device);

/// The blocks of such a launch that run at once.
std::int64_t block_slots_sm90(const KernelConfig& config, const KernelProblem& kernel_problem,
                              const DeviceInfo& device);

}  // namespace jitgemm
