#pragma once

#include "core/constraints.hpp"
#include "core/device_info.hpp"
#include "core/kernel_config.hpp"

namespace jitgemm {

/// predict_us() of the Hopper main loop on a device that has it, for what kernel_problem() says: without packing.
double predict_sm90_us(const KernelConfig& config, const Problem& kernel_problem, const DeviceInfo& device);

/// About the same for a data-parallel tile with the best of its schedules, of those that the filter allows; infinite if
/// it allows none.
double predict_tile_sm90_us(const KernelConfig& tile, const Problem& kernel_problem, const DeviceInfo& device,
                            const ConstraintFilter* filter = nullptr);

}  // namespace jitgemm
