#pragma once

#include "core/kernel_config.hpp"

namespace jitgemm {

/// Predicted microseconds of one launch with a cold L2, from device facts and fitted constants; no measurement.
double predict_us(const KernelConfig& config, const Problem& problem, const DeviceInfo& device);

}  // namespace jitgemm
