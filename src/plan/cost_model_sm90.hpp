#pragma once

#include <cstdint>

#include "core/constraints.hpp"
#include "core/device_info.hpp"
#include "core/kernel_config.hpp"
#include "jitgemm/context.hpp"

namespace jitgemm {

/// What one problem, as kernel_problem() gives it, takes with the Hopper main loop on a device that has it, without
/// packing. Refers to both while it lives.
class CostModelSm90 {
 public:
  CostModelSm90(const Problem& kernel_problem, const DeviceInfo& device);

  PredictedTime time(const KernelConfig& config) const;
  double us(const KernelConfig& config) const { return time(config).us; }
  /// About the least us() of a data-parallel tile's schedules, of those that the filter allows; infinite if it allows
  /// none.
  double tile_us(const KernelConfig& tile, const ConstraintFilter* filter = nullptr) const;

 private:
  struct Cut;
  Cut cut_of(const KernelConfig& config) const;
  double heat(double clusters) const;
  bool two_fit(const KernelConfig& config) const;

  const Problem& problem_;
  const DeviceInfo& device_;
  const HopperRates& rates_;
  bool multiplies_, b_k_major_, promoted_;
  double us_per_clock_, element_, epilogue_us_, row_us_a_, row_us_b_, d_bytes_, part_element_;
  double flop_us_, memory_us_, operand_bytes_;
};

}  // namespace jitgemm
