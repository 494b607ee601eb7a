#pragma once

#include <array>
#include <cstdint>

#include "jitgemm/plan.hpp"
#include "kernels/dealing.hpp"
#include "kernels/legality.hpp"
#include "plan/constraints.hpp"
#include "plan/rated_device.hpp"

namespace jitgemm {

/// What one problem, as kernel_problem() gives it, takes with the Hopper main loop on a device that has it, without
/// packing. Refers to both while it lives.
class CostModelSm90 {
 public:
  CostModelSm90(const KernelProblem& kernel_problem, const RatedDevice& device);

  PredictedTime time(const KernelConfig& config) const { return time(config, expected_tile_counts(problem_, config)); }
  double us(const KernelConfig& config) const { return time(config).us; }
  /// About the least us() of a data-parallel tile's schedules, of those that the filter allows; infinite if it allows
  /// none.
  double tile_us(const KernelConfig& tile, const ConstraintFilter* filter = nullptr) const;

 private:
  /// A launch, in the words of the model. Blocks are thread blocks, a tile is one block's unless it says otherwise.
  struct Launch {
    const KernelConfig& config;
    TileCounts cluster_tiles;
    Dealing dealing = {};
    int cluster = 1;                             ///< blocks
    int usable = 1, resident = 1;                ///< SMs, and blocks that share one
    std::int64_t tiles = 0;                      ///< of all blocks
    double rows = 0, columns = 0, elements = 0;  ///< of a tile
    double multiplied_rows = 0;                  ///< of them, on average, which are those that are loaded
    double loaded_columns = 0;                   ///< of B, for one, with those that parts of it come to
  };
  /// One k-block of a block, in what it asks of an SM alone and of the L2 with all others.
  struct Step {
    double ingest_clocks = 0, rows_us = 0;
    double product_clocks = 0, promotion_clocks = 0;  ///< the latter of a warpgroup that multiplies alone
    double latency_us = 0, slowdown = 1;
  };

  PredictedTime time(const KernelConfig& config, const TileCounts& counts) const;
  Launch launch_of(const KernelConfig& config, const TileCounts& counts) const;
  Step step_of(const Launch& launch) const;
  /// With so many blocks active, `share` of them on each SM.
  double step_us(const Step& step, double active, int share) const;
  /// What a row costs that so many clusters ask for at once, over one that a single cluster asks for.
  double contention(double clusters) const;
  double epilogue_us(const Launch& launch) const;
  /// What storing D takes over one whose tiles share no line with their neighbours (tools/results/NOTES.md, 61).
  double shared_lines(const KernelConfig& config) const;
  double part_bytes(const Launch& launch) const { return launch.elements * part_element_; }

  // The parts of the time that depend on how a schedule deals tiles out: the main loop, the epilogue and the fix-up.
  void add_waves(const Launch& launch, PredictedTime& time) const;
  void add_rounds(const Launch& launch, PredictedTime& time) const;
  void add_ranges(const Launch& launch, PredictedTime& time) const;
  /// Of what all CTAs take, the memory and the power limit, the longest, with some of the others.
  double together_us(const PredictedTime& time) const;

  const KernelProblem& problem_;
  const DeviceInfo& device_;
  const HopperRates& rates_;
  std::array<int, 9> usable_sms_;  // by size of the cluster
  bool b_k_major_, promoted_, has_early_start_;
  double sharing_;  // of rates_.shared_row, the binary logarithm
  double us_per_clock_, element_, epilogue_us_, row_us_a_, row_us_b_, d_bytes_, part_element_;
  double flop_us_, memory_us_, operand_bytes_;
};

}  // namespace jitgemm
