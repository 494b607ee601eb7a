#pragma once

#include "core/device_info.hpp"
#include "core/kernel_config.hpp"

namespace jitgemm {

/// predict_us() of the Hopper main loop on a device that has it.
double predict_sm90_us(const KernelConfig& config, const Problem& problem, const DeviceInfo& device);

}  // namespace jitgemm
