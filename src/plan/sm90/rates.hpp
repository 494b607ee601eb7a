#pragma once

#include "core/data_sheet.hpp"
#include "plan/named_rates.hpp"

namespace jitgemm {

/// What the cost model takes a device to do with the Hopper main loop. The defaults are an H200's: fitted to 26,700
/// measured configurations of 567 problems (tools/results/NOTES.md, 61); what promotes, unaligned rows of D, power and
/// memory are from 22. Microseconds; bytes and operations a microsecond; "a clock" is one SM's.
struct HopperRates {
  double launch_us = 1.23;  ///< to the first product, and from the last store to the end
  double clocks_us = 1638;
  double ingest = 0.76;          ///< of the clocks that 64 bytes a clock take into an SM's shared memory
  double shared_writes = 0.336;  ///< clocks that a row of 128 bytes takes of shared memory while products read it
  /// 128 bytes of an operand from the L2, in one line or two, all SMs together.
  double row_ns = 0.0149, straddling_row_ns = 0.0221;
  double shared_row = 0.895;           ///< of that, for each doubling of the clusters that ask for a row at once
  double hot_row = 0.0484;             ///< and so much more for each doubling above 8
  double ping_pong_row = 0.894;        ///< of that, for consumers that take tiles in turn
  double latency_us = 0.791;           ///< of a load, hidden by the stages
  double clusters = 1.06;              ///< a k-block's time in a cluster, over what its parts take
  double square_clusters = 1.11;       ///< and once more in one of 2 by 2 (tools/results/NOTES.md, 51)
  double promotions = 33.6;            ///< of partial sums, a clock
  double epilogue_us = 0.233;          ///< of 128 accumulators a thread
  double unaligned_epilogue_us = 3.4;  ///< the same where D's rows leave by ordinary stores
  double store_bytes_clock = 22.4;
  double cluster_sum_us = 0.257, cluster_sum_bytes_clock = 15.7;
  double arrival_us = 1.9, part_bytes_us = 46.5e3;  ///< of a tile split across CTAs
  double wave_us = 2.5;                             ///< between two waves of blocks
  double second_block_us = 0.289;                   ///< for another block on each SM
  double unhidden = 0.445;                          ///< of what runs beside the longest
  double power_flops_us = 800e6;                    ///< of 16-bit operands; all SMs together
  double memory_bytes_us = 4.52e6;

  /// An H100's of 132 SMs and HBM3: fitted to 26,000 measured configurations of 751 problems (tools/results/NOTES.md,
  /// 58); the memory's rate is measured, and the power's is from 51.
  static HopperRates of_h100();
  /// Of any device, from its data sheet; nothing is measured.
  static HopperRates derived(const DataSheet& device);
  /// All of them by name, "sm90.launch_us", ...
  NamedRates fields();
};

}  // namespace jitgemm
