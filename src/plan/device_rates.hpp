#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace jitgemm {

struct DeviceInfo;

/// What the cost model takes a device to do. The defaults are an H200's: fitted to measured candidates, 3000 of 129
/// shapes for the Hopper loop and 2500 of 190 for the portable one (tools/results/NOTES.md, 22, 24 and 6).
/// Microseconds; bytes and operations a microsecond; "a clock" is one SM's.
struct HopperRates {
  double launch_us = 1.65;  ///< to the first product, and from the last store to the end
  double clocks_us = 1.7e3;
  double ingest = 0.847;  ///< of the clocks that 64 bytes a clock take into an SM's shared memory
  /// 128 bytes of an operand from the L2, in one line or two, all SMs together.
  double row_ns = 0.0090, straddling_row_ns = 0.0142;
  double hot_row = 0.3;        ///< so much more for each doubling of the clusters, above 8, that ask for a row at once
  double latency_us = 0.764;   ///< of a load, hidden by the stages
  double promotions = 33.6;    ///< of partial sums, a clock
  double epilogue_us = 0.249;  ///< of 128 accumulators a thread
  double unaligned_epilogue_us = 3.4;  ///< the same where D's rows leave by ordinary stores
  double store_bytes_clock = 23.1;
  double cluster_sum_us = 0.332, cluster_sum_bytes_clock = 12.8;
  double arrival_us = 1.29, part_bytes_us = 2.19e4;  ///< of a tile cut across programs
  double wave_us = 1.9;                              ///< between two waves of blocks
  double second_block_us = 0.3;                      ///< for another block on each SM
  double unhidden = 0.364;                           ///< of what runs beside the longest
  double power_flops_us = 800e6;                     ///< of 16-bit operands; all SMs together
  double memory_bytes_us = 4.52e6;
};

struct PortableRates {
  double launch_us = 0.85;           ///< besides the prologue
  double sm_flops_us = 440e6 / 132;  ///< sustained, shared memory and barriers left out; of 16-bit operands
  double power_flops_us = 440e6;     ///< all SMs together
  double prologue_us = 2.7;          ///< from a program's start to its first product, cold
  double tile_prologue_us = 0.56;    ///< the same for a program's later tiles
  double latency_us = 1.28;          ///< from the issue of a copy to its data in shared memory
  double step_us = 0.235;            ///< barrier, waits and issue of a k-step, exposed when one program has the SM
  double mma_us = 0.0089;    ///< between two mma of one warp, which is what a warp alone on its tensor core runs at
  double epilogue_us = 2.7;  ///< of a tile, besides its bytes, with 128 accumulators a thread
  double arrival_us = 2.2;   ///< of a split tile: release, atomic round trip, acquire
  double partial_bytes_us = 17e6;    ///< reads and writes of partials, all SMs together
  double operand_bytes_us = 8.2e6;   ///< A and B from the L2: a 128x256 kernel without multicast draws 9 at 700 TFLOP/s
  double sm_l2_bytes_us = 0.125e6;   ///< one SM alone: 64 bytes a clock at best
  double sm_smem_bytes_us = 0.28e6;  ///< 128 bytes a clock at best
  double unhidden = 0.22;            ///< of what runs beside the longest of products, memory and L2 transfers
  double memory_bytes_us = 4.2e6;
};

struct DeviceRates {
  HopperRates sm90;
  PortableRates sm80;
  std::string origin = "an H200's";  ///< or "derived", or when they were calibrated
};

/// An H200's for an H200; else what follows from the architecture's documented widths, the device's clock, SMs and
/// memory, and latencies in clocks that hardly differ between devices of an architecture. Nothing is measured. Of an
/// emulated device, what the typical one of its architecture has.
DeviceRates rates_of(const DeviceInfo& device);
/// The second half of that, for any device.
DeviceRates derived_rates(const DeviceInfo& device);

/// All of them by name, to store and to fit: "sm90.launch_us", ...
std::vector<std::pair<std::string_view, double*>> fields_of(DeviceRates& rates);

}  // namespace jitgemm
