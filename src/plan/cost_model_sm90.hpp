#pragma once

#include <array>
#include <cstdint>

#include "jitgemm/plan.hpp"
#include "kernels/legality.hpp"
#include "plan/constraints.hpp"
#include "plan/rated_device.hpp"

namespace jitgemm {

/// What one problem, as kernel_problem() gives it, takes with the Hopper main loop on a device that has it, without
/// packing. Refers to both while it lives.
class CostModelSm90 {
 public:
  CostModelSm90(const Problem& kernel_problem, const RatedDevice& device);

  PredictedTime time(const KernelConfig& config) const { return time(config, cut_of(config)); }
  double us(const KernelConfig& config) const { return time(config).us; }
  /// About the least us() of a data-parallel tile's schedules, of those that the filter allows; infinite if it allows
  /// none.
  double tile_us(const KernelConfig& tile, const ConstraintFilter* filter = nullptr) const;

 private:
  /// What of device::Decomposition the model is about.
  struct Cut {
    std::int64_t tiles_m, tiles_n, tiles, k_steps;
    std::int64_t programs = 0, stream_k_tiles = 0, splits = 1;  // as the schedule deals them out
  };
  /// What is the same for all schedules of a tile; deal_out() adds the rest.
  Cut tiles_of(const KernelConfig& config) const;
  void deal_out(const KernelConfig& config, Cut& cut) const;
  Cut cut_of(const KernelConfig& config) const;
  PredictedTime time(const KernelConfig& config, const Cut& cut) const;
  double heat(double clusters) const;
  bool two_fit(const KernelConfig& config) const;

  const Problem& problem_;
  const DeviceInfo& device_;
  const HopperRates& rates_;
  std::array<int, 9> usable_sms_;  // by size of the cluster
  bool multiplies_, b_k_major_, promoted_;
  double us_per_clock_, element_, epilogue_us_, row_us_a_, row_us_b_, d_bytes_, part_element_;
  double flop_us_, memory_us_, operand_bytes_;
};

}  // namespace jitgemm
