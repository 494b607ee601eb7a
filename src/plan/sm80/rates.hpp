#pragma once

#include "core/data_sheet.hpp"
#include "plan/named_rates.hpp"

namespace jitgemm {

/// What the cost model takes a device to do with the portable main loop. The defaults are an H200's: fitted to 2500
/// measured candidates of 190 shapes (tools/results/NOTES.md, 6). Microseconds; bytes and operations a microsecond.
struct PortableRates {
  double launch_us = 0.85;           ///< besides the prologue
  double sm_flops_us = 440e6 / 132;  ///< sustained, shared memory and barriers left out; of 16-bit operands
  double power_flops_us = 440e6;     ///< all SMs together
  double prologue_us = 2.7;          ///< from a CTA's start to its first product, cold
  double tile_prologue_us = 0.56;    ///< the same for a CTA's later tiles
  double latency_us = 1.28;          ///< from the issue of a copy to its data in shared memory
  double step_us = 0.235;            ///< barrier, waits and issue of a k-block, exposed when one CTA has the SM
  double mma_us = 0.0089;    ///< between two mma of one warp, which is what a warp alone on its tensor core runs at
  double epilogue_us = 2.7;  ///< of a tile, besides its bytes, with 128 accumulators a thread
  double arrival_us = 2.2;   ///< of a split tile: release, atomic round trip, acquire
  double partial_bytes_us = 17e6;    ///< reads and writes of partials, all SMs together
  double operand_bytes_us = 8.2e6;   ///< A and B from the L2: a 128x256 kernel without multicast draws 9 at 700 TFLOP/s
  double sm_l2_bytes_us = 0.125e6;   ///< one SM alone: 64 bytes a clock at best
  double sm_smem_bytes_us = 0.28e6;  ///< 128 bytes a clock at best
  double unhidden = 0.22;            ///< of what runs beside the longest of products, memory and L2 transfers
  double memory_bytes_us = 4.2e6;

  /// Of any device, from its data sheet; nothing is measured.
  static PortableRates derived(const DataSheet& device);
  /// All of them by name, "sm80.launch_us", ...
  NamedRates fields();
};

}  // namespace jitgemm
