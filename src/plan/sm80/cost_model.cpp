#include "plan/sm80/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "geometry_sm80.cuh"
#include "kernels/launch_shape.hpp"
#include "kernels/parameters.hpp"
#include "plan/hardware.hpp"

namespace jitgemm {
namespace {

// Units: microseconds; bytes, and floating point operations, a microsecond. So 1e6 is 1 TB/s or 1 TFLOP/s.

/// The loop's rate with inputs of a type; of 16 bits, of which it sustains less than half the data sheet's, = 1. f64
/// and f32 come closer to their peaks; Hopper's mma.sync turns fp8 into f16.
double relative_rate(DataType a) {
  if (a == f64) return 0.13;
  if (a == f32) return 0.10;
  return is_fp8(a) ? 0.9 : data_sheet_rate(a);
}

constexpr int registers_besides_accumulators = 72;  // of a thread; no source is known
constexpr double usual_accumulators = 128;          // of a thread: those that PortableRates::epilogue_us is of
constexpr double store_align = 8;     // bytes, from which on the epilogue's stores are as fast as they get
constexpr int mma_m = 16, mma_n = 8;  // of one mma.sync, whose k is
constexpr double mma_k_bytes = 32;
constexpr double tensor_cores = 4;  // of an SM, one a warp

/// Rate of copies into shared memory relative to 16-byte ones: below 4 bytes there is no cp.async, and each element
/// is one load and one store. Fitted, with the loop's rates (tools/results/NOTES.md, 6).
double copy_efficiency(int align) { return align >= 16 ? 1.0 : align >= 8 ? 0.2 : align >= 4 ? 0.145 : 0.11; }

/// The busiest CTA's share, and how many contribute to a split tile.
struct Share {
  double steps = 0, tiles = 0;
  double peers = 1;
};

Share busiest_share(const KernelConfig& config, const device::Decomposition& d) {
  const auto ceil_div = [](std::int64_t x, std::int64_t y) { return double((x + y - 1) / y); };
  const std::int64_t tiles = device::tile_count(d);
  if (config.schedule == Schedule::split_k) {
    const double parts = ceil_div(tiles * d.splits, d.ctas);
    return {parts * ceil_div(d.k_blocks, d.splits), parts, double(d.splits)};
  }
  const double whole = ceil_div(tiles - d.stream_k_tiles, d.ctas);
  Share share{whole * d.k_blocks, whole, 1};
  if (d.stream_k_tiles > 0) {
    const double range = ceil_div(std::int64_t(d.stream_k_tiles) * d.k_blocks, d.ctas);
    share.steps += range;
    share.tiles += std::floor(range / d.k_blocks) + 1;
    share.peers = std::min(double(d.ctas), std::ceil(d.k_blocks / range) + 1);
  }
  return share;
}

int accumulators_of(const KernelConfig& config) { return config.block_m * config.block_n / (config.warps * 32); }

int resident_ctas(const KernelConfig& config, const KernelProblem& problem, const LaunchShape& shape,
                  const DeviceInfo& device) {
  const int accumulator_registers = accumulators_of(config) * int(size_of(accumulator_of(problem))) / 4;
  const int registers = std::min(255, accumulator_registers + registers_besides_accumulators) * shape.threads;
  const int by_smem = int(device.smem_per_sm / (shape.smem_bytes + reserved_smem_bytes));
  return std::max(1, std::min({by_smem, sm_registers / registers, sm_threads / shape.threads}));
}

/// One k-block of `resident` CTAs that share an SM: the slowest of products, shared memory, copies, and latencies.
double step_us(const KernelConfig& config, const KernelProblem& problem, const PortableRates& rates, double flops,
               int resident) {
  const double m = config.block_m, n = config.block_n, k = config.block_k, element = double(size_of(problem.a.type));
  const double products = 2 * m * n * k / flops;
  // Each warp reads the rows and columns of its own.
  const device::sm80::Geometry geometry = device::sm80::geometry(parameters_of(config, problem));
  const double reads = m * geometry.warps_n + n * geometry.warps_m;
  const double shared = (reads + m + n) * k * element / rates.sm_smem_bytes_us;
  const double copies = (m / copy_efficiency(problem.a.alignment) + n / copy_efficiency(problem.b.alignment)) * k *
                        element / rates.sm_l2_bytes_us;
  const double warp_m = geometry.warp_m, warp_n = geometry.warp_n;
  const double mmas = warp_m / mma_m * warp_n / mma_n * k * element / mma_k_bytes;  // of one warp
  const double alone =
      std::max(products / std::min(1.0, config.warps / tensor_cores), mmas * rates.mma_us) + rates.step_us;
  const double latency = rates.latency_us / (config.stages - 1);
  return std::max({resident * std::max({products, shared, copies}), alone, latency});
}

/// Bytes of A and B read from device memory again, where they outgrow the L2: each wave reads as far as its tiles
/// reach. CTAs that share split tiles are at different k and find little of each other's (tools/results/NOTES.md, 5).
double repeated_bytes(const KernelConfig& config, const KernelProblem& problem, const device::Decomposition& d,
                      double wave, const DeviceInfo& device) {
  const double element = double(size_of(problem.a.type)), k = double(problem.k), tiles = double(d.tiles_m * d.tiles_n);
  const double once = (double(problem.m) + double(problem.n)) * k * element;  // of one matrix of the batch
  const double kept = l2_for_operands * double(device.l2_bytes);
  if (once < kept) return 0;
  const double split = d.stream_k_tiles / tiles / d.batch;
  const double split_bytes = split * tiles * (config.block_m + config.block_n) * k * element * (1 - kept / once);
  const double out_of_step = std::max(0.0, split_bytes - split * once);
  if (wave >= tiles) return out_of_step * d.batch;
  const double rows = std::min(double(std::max(1, config.group_m)), double(d.tiles_m));
  const double columns = std::min(double(d.tiles_n), std::ceil(wave / rows));
  const double groups = std::max(1.0, wave / (rows * columns));
  const double wave_bytes = (groups * rows * config.block_m + columns * config.block_n) * k * element;
  return (out_of_step + (1 - split) * std::max(0.0, tiles / wave * wave_bytes - once)) * d.batch;
}

}  // namespace

PredictedTime predict_sm80(const KernelConfig& config, const NormalProblem& asked, const RatedDevice& device) {
  const PortableRates& rates = device.rates.of<PortableRates>();
  PredictedTime time;
  time.us = time.launch_us = rates.launch_us;
  const LaunchShape shape = launch_shape(asked, config);
  const device::Decomposition& d = shape.decomposition;
  if (shape.grid == 0) return time;
  const KernelProblem problem = kernel_problem(asked, config);

  const double rate = relative_rate(problem.a.type);
  const double sms = device.sm_count, flops = rate * rates.sm_flops_us;

  // CTAs run on the busiest SM in batches of those that it holds at once. The last batch may be smaller.
  const Share share = busiest_share(config, d);
  const int ctas = int((shape.grid + device.sm_count - 1) / device.sm_count);
  const int resident = std::min(ctas, resident_ctas(config, problem, shape, device));
  const int batches = ctas / resident, rest = ctas % resident;
  time.main_loop_us = batches * share.steps * step_us(config, problem, rates, flops, resident);
  if (rest > 0) time.main_loop_us += share.steps * step_us(config, problem, rates, flops, rest);
  const double all_flops = 2.0 * device::tile_count(d) * d.k_blocks * config.block_m * config.block_n * config.block_k;
  time.power_us = all_flops / (rate * rates.power_flops_us);

  // What a tile costs besides products. CTAs that share an SM hide it behind each other's products.
  const double tile_elements = double(config.block_m) * config.block_n;
  const double d_bytes = tile_elements * epilogue_bytes_per_sum(problem);
  const double store_efficiency = std::min(1.0, problem.d.alignment / store_align);
  const double epilogue = rates.epilogue_us * accumulators_of(config) / usual_accumulators +
                          d_bytes / (rates.sm_l2_bytes_us * store_efficiency);
  const double cta_us = rates.prologue_us + (share.tiles - 1) * rates.tile_prologue_us + share.tiles * epilogue;
  const double exposed = std::ceil(double(ctas) / resident);
  time.epilogue_us = cta_us * (resident == 1 ? exposed : 1 + (exposed - 1) / resident);

  // A split tile: each peer writes its part, the last to arrive reads them all.
  if (share.peers > 1) {
    const double part_bytes = tile_elements * double(size_of(accumulator_of(problem)));
    const double all_parts =
        share.peers * part_bytes * (config.schedule == Schedule::split_k ? device::tile_count(d) : d.stream_k_tiles);
    time.fixup_us = rates.arrival_us + (1 + share.peers) * part_bytes / rates.sm_l2_bytes_us +
                    2 * all_parts / rates.partial_bytes_us;
  }

  const double wave = std::min(double(device::tile_count(d)), sms * resident_ctas(config, problem, shape, device));
  const double bytes =
      minimum_bytes(problem) + (reads_ab(problem) ? repeated_bytes(config, problem, d, wave, device) : 0);
  const double l2_bytes = double(device::tile_count(d)) * d.k_blocks * (config.block_m + config.block_n) *
                          config.block_k * double(size_of(problem.a.type));
  time.memory_us = bytes / rates.memory_bytes_us;
  const double l2_us = l2_bytes / rates.operand_bytes_us;
  const double products_us = std::max(time.main_loop_us, time.power_us);
  const double longest_us = std::max({products_us, time.memory_us, l2_us});
  const double main_us = longest_us + rates.unhidden * (products_us + time.memory_us + l2_us - longest_us);
  time.us += main_us + time.epilogue_us + time.fixup_us;
  return time;
}

}  // namespace jitgemm
