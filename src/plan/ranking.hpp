#pragma once

#include <cstddef>
#include <vector>

#include "core/problem.hpp"
#include "jitgemm/constraints.hpp"
#include "jitgemm/kernel_config.hpp"
#include "plan/rated_device.hpp"

namespace jitgemm {

struct RankedConfig {
  KernelConfig config;
  double predicted_us = 0;
};

/// The candidates, best predicted first. With a limit, so many of the best, of which no tile has more than a quarter
/// while others are left; found in two stages, tiles and then the schedules of the best of them, in some 50 us. Empty
/// only for types that the device lacks. limit 0: all.
///
/// With constraints, those that keep to them, predicted for part_of() the device; with few SMs empty also for the very
/// largest problems, of which no grid deals out all k-blocks. Throws Error{invalid_option} for SMs that the device
/// lacks.
std::vector<RankedConfig> rank(const NormalProblem& normalised, const RatedDevice& device, std::size_t limit = 0,
                               const Constraints& constraints = {});

}  // namespace jitgemm
