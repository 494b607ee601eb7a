#pragma once

#include <vector>

#include "core/kernel_config.hpp"

namespace jitgemm {

struct RankedConfig {
  KernelConfig config;
  double predicted_us = 0;
};

/// Predicted microseconds of one launch with a cold L2, from device facts and fitted constants; no measurement.
double predict_us(const KernelConfig& config, const Problem& problem, const DeviceInfo& device);

/// The candidates, best predicted first. With a limit, so many of the best, of which no tile has more than a quarter
/// while others are left. Empty only for types that the device lacks. limit 0: all.
std::vector<RankedConfig> rank(const Problem& problem, const DeviceInfo& device, std::size_t limit = 0);

}  // namespace jitgemm
