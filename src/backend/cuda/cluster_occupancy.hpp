#pragma once

#include "backend/cuda/device_context.hpp"
#include "core/device_info.hpp"

namespace jitgemm::cuda {

/// How many clusters of each size run at once on this very card where each block has an SM of its own: cards of one
/// name differ in which SMs of their GPCs work. What the driver does not say stays 0, and is logged. In the current
/// context.
DeviceInfo::ClusterCounts cluster_counts(const DeviceContext& context, const DeviceInfo& device);

}  // namespace jitgemm::cuda
