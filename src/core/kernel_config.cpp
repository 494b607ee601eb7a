#include "core/kernel_config.hpp"

#include <algorithm>
#include <numeric>

#include "core/kernel_problem.hpp"
#include "core/packing.hpp"
#include "core/problem.hpp"
#include "core/tensor_maps.hpp"
#include "core/type_rules.hpp"
#include "util/integers.hpp"

namespace jitgemm {
namespace {

constexpr std::size_t sm90_alignment_slack = 1024;  // bytes
constexpr std::size_t queue_entry_bytes = 32;       // mainloop_sm80.cuh's WorkQueue

bool is_power_of_two(int x) { return x > 0 && (x & (x - 1)) == 0; }

/// 4-byte registers of one thread's part of a tile's accumulators.
int accumulator_registers(const KernelConfig& c, const Problem& p) {
  return c.block_m * c.block_n / (c.warps * 32) * int(size_of(accumulator_of(p))) / 4;
}

std::string why_illegal_sm80(const KernelConfig& c, const Problem& p, const DeviceInfo& device) {
  if ((is_fp8(p.a) || is_fp8(p.b)) && device.compute_capability < 89) return "e4m3 and e5m2 need sm_89 or newer";
  const int element = int(size_of(p.a));
  if (c.block_k != 128 / element && (c.block_k != 64 / element || p.a == f64))
    return "block_k is 64 or 128 bytes, of f64 128";
  const int k_bytes = c.block_k * element;
  if (!is_power_of_two(c.block_m) || !is_power_of_two(c.block_n) || c.block_m < 32 || c.block_n < 32 ||
      c.block_m > 256 || c.block_n > 256)
    return "block_m and block_n are powers of two in 32..256";
  if (!is_power_of_two(c.warps) || c.warps > 16) return "warps is a power of two, 16 at most";
  const auto [warps_m, warps_n] = warp_grid_of(c);
  if (c.block_m / warps_m % 16 != 0 || c.block_n / warps_n % 16 != 0 || warps_m * warps_n != c.warps)
    return "a warp's tile is a multiple of 16 x 16";
  const int threads = c.warps * 32;
  const bool a_k_major = p.layout_a == Layout::row_major, b_k_major = p.layout_b == Layout::column_major;
  if (c.block_m * k_bytes / 16 % threads != 0 || c.block_n * k_bytes / 16 % threads != 0 ||
      (!a_k_major && c.block_m * element / 16 > threads) || (!b_k_major && c.block_n * element / 16 > threads))
    return "every thread copies the same number of 16-byte chunks";
  // A thread has 255 registers; the fragments and addresses take about 100, without tensor cores 40 more.
  if (accumulator_registers(c, p) > 128) return "a thread holds at most 128 registers of accumulators";
  if ((is_simt(p.a) || std::min(p.align_a, p.align_b) < 4) && accumulator_registers(c, p) > 64)
    return "a thread that multiplies without tensor cores, or holds operands aligned to less than 4 bytes in "
           "registers, holds at most 64 registers of accumulators";
  if (c.stages < 2 || c.stages > 8) return "at least 2 stages, and 8 at most";
  return {};
}

/// Thread blocks of all tiles, which those of whole clusters round up.
double tiles_of(const KernelConfig& c, const Problem& p) {
  return double(ceil_div(p.m, c.block_m * c.cluster_m)) * double(ceil_div(p.n, c.block_n * c.cluster_n)) *
         double(p.batch) * cluster_size_of(c);
}

/// Of one thread, sm90.
int accumulator_count(const KernelConfig& c) { return consumer_rows_of(c) * c.block_n / 128; }

std::string why_illegal_sm90(const KernelConfig& c, const Problem& asked, const Problem& p, const DeviceInfo& device) {
  if (!device.has_wgmma()) return "the sm90 main loop needs an sm_90a device";
  if (is_simt(p.a) || p.a == f64) return "wgmma does not multiply f32 or f64";
  if (size_of(p.a) != 2 && (p.layout_a != Layout::row_major || p.layout_b != Layout::column_major))
    return "wgmma takes operands other than f16 and bf16 K-major alone: A row-major, B column-major";
  if (!reads_ab(p)) return "the sm90 main loop needs an A and B to read: k and alpha are not zero";
  if (c.block_k != 128 / int(size_of(p.a))) return "block_k is 128 bytes: one swizzled row";
  if (c.warps != 4 && c.warps != 8 && c.warps != 12) return "warps are those of one to three consumer warpgroups";
  if (c.ping_pong && c.warps != 8) return "ping-pong has two consumer warpgroups";
  const int consumer_rows = consumer_rows_of(c);
  if (c.block_m % (c.ping_pong ? 1 : c.warps / 4) != 0 || (consumer_rows != 64 && consumer_rows != 128))
    return "a consumer warpgroup has 64 or 128 rows";
  if (c.block_n < 16 || c.block_n % (size_of(p.a) == 1 ? 16 : 8) != 0 || c.block_n > 256)
    return "block_n is a multiple of 8, of 8-bit operands 16, in 16..256";
  if (accumulator_count(c) > most_accumulators(c.warps, Accumulation::fast))
    return "a thread holds at most 128 accumulators, 160 with two consumer warpgroups, 96 with three";
  if (accumulator_count(c) > most_accumulators(c.warps, p.accumulation))
    return "a thread that promotes holds at most 112 accumulators, 96 with two consumer warpgroups, 64 with three";
  if (p.align_a != 16 || p.align_b != 16) return "TMA loads need 16-byte aligned rows";
  if (c.stages < 2 || c.stages > 16) return "at least 2 stages, and 16 at most";
  const auto is_1_2_4_8 = [](int x) { return is_power_of_two(x) && x <= 8; };
  if (!is_1_2_4_8(c.cluster_m) || !is_1_2_4_8(c.cluster_n) || !is_1_2_4_8(c.cluster_k) || cluster_size_of(c) > 8)
    return "a cluster is a product of powers of two, of 8 thread blocks at most";
  if ((p.layout_a == Layout::row_major && c.block_m % (8 * c.cluster_n) != 0) ||
      (p.layout_b == Layout::column_major && c.block_n % (8 * c.cluster_m) != 0))
    return "each block of a cluster fetches a multiple of 8 rows of what it shares";
  if (c.cluster_k > 1) {
    if (c.schedule != Schedule::data_parallel || c.ping_pong)
      return "clusters that cut k are data-parallel and cooperative";
    if ((p.k + c.block_k - 1) / c.block_k < c.cluster_k) return "each block of a cluster that cuts k has a k-step";
    if (c.block_n % (8 * c.cluster_k) != 0) return "a block of a cluster that cuts k adds up a multiple of 8 columns";
    if (c.block_m * c.block_n * 4 > c.stages * (c.block_m + c.block_n) * 128)
      return "the partial sums of a cluster that cuts k fit into the stages";
  }
  const TensorMaps maps = tensor_maps_of(slab_problem(asked, slab_of(asked, c)), c);
  for (const TensorMapSpec* map : {&maps.a, &maps.b, maps.has_d() ? &maps.d : nullptr})
    if (std::string why = map ? why_unmappable(*map) : ""; !why.empty()) return why;
  return {};
}

}  // namespace

int cluster_size_of(const KernelConfig& c) { return c.cluster_m * c.cluster_n * c.cluster_k; }

int consumer_rows_of(const KernelConfig& c) { return c.ping_pong ? c.block_m : c.block_m / (c.warps / 4); }

int most_accumulators(int warps, Accumulation accumulation) {
  if (accumulation == Accumulation::promoted) return warps == 12 ? 64 : warps == 8 ? 96 : 112;
  // A thread of two consumers has 232 registers, of three 160, of which ptxas uses 128.
  return warps == 12 ? 96 : warps == 8 ? 160 : 128;
}

int blocks_per_sm_of(const KernelConfig& c, const Problem& p) {
  return c.warps == 4 && accumulator_count(c) <= (p.accumulation == Accumulation::promoted ? 48 : 64) ? 2 : 1;
}

int consumer_groups_of(const KernelConfig& c) {
  return c.main_loop == MainLoop::sm90 && !c.ping_pong ? c.warps / 4 : 1;
}

DBox d_box_of(const KernelConfig& c, const Problem& p) {
  constexpr int slab = 64;  // rows of a wgmma
  const int columns = c.block_n / c.cluster_k, element = int(size_of(p.d));
  if (c.swap_ab) return {std::min(128 / element, slab), std::gcd(std::min(128 / element, columns), columns)};
  for (int bytes = 128; bytes >= 16; bytes /= 2) {
    if (columns * element % bytes == 0) return {bytes / element, slab};
  }
  return {0, 0};
}

WarpGrid warp_grid_of(const KernelConfig& c) {
  if (c.main_loop == MainLoop::sm90) return {c.warps, 1};
  // The split whose warp tiles are nearest to square reads least from shared memory; ties go to wider ones.
  WarpGrid best{c.warps, 1};
  int best_edges = 0;
  for (int m = 1; m <= c.warps; m *= 2) {
    const int n = c.warps / m;
    if (c.block_m % (16 * m) != 0 || c.block_n % (16 * n) != 0) continue;
    const int edges = c.block_m / m + c.block_n / n;
    if (best_edges == 0 || edges < best_edges) best = {m, n}, best_edges = edges;
  }
  return best;
}

std::string why_beyond_integers(const KernelConfig& c, const Problem& asked) {
  const Problem p = kernel_problem(asked, c);
  if (is_empty(p)) return {};
  constexpr std::int64_t most_rows = std::int64_t(1) << 31;
  constexpr double most = 1 << 30;
  if (round_up(p.m, c.block_m * c.cluster_m) > most_rows || round_up(p.n, c.block_n * c.cluster_n) > most_rows)
    return "tiles end at row and column 2^31 at most";
  const double tiles = tiles_of(c, p);
  if (tiles * c.splits >= most) return "tiles x splits is less than 2^30";
  if (c.grid > 0 && tiles * double(ceil_div(p.k, c.block_k)) >= most) return "tiles x k-steps is less than 2^30";
  return {};
}

std::string why_illegal(const KernelConfig& c, const Problem& asked, const DeviceInfo& device) {
  const Problem p = kernel_problem(asked, c);
  if (c.main_loop > MainLoop::sm90 || c.schedule > Schedule::stream_k_two_tile)
    return "main_loop and schedule are enumerators";
  if (std::string why =
          c.main_loop == MainLoop::sm80 ? why_illegal_sm80(c, p, device) : why_illegal_sm90(c, asked, p, device);
      !why.empty())
    return why;
  if (c.main_loop == MainLoop::sm80 && (cluster_size_of(c) != 1 || c.ping_pong || c.swap_ab))
    return "clusters, ping-pong and swapped operands are of the sm90 main loop";
  if (c.main_loop == MainLoop::sm80 && packs(c)) return "the sm80 main loop takes operands where they are";
  if (c.group_m < 0 || c.group_m > 64) return "group_m is 0..64";
  if (c.splits < 1 || c.splits > 64) return "splits is 1..64";
  if (c.splits > 1 && c.schedule != Schedule::split_k) return "only split_k has splits";
  if (c.grid < 0 || c.grid > 65535) return "grid is 0..65535";
  if (c.grid > 0 && c.schedule == Schedule::data_parallel) return "data_parallel has no grid of its own";
  if (const std::size_t bytes = smem_bytes_of(c, asked); bytes > device.smem_per_block)
    return "the stages need " + std::to_string(bytes) + " bytes of shared memory, the device has " +
           std::to_string(device.smem_per_block);
  if (std::string why = why_beyond_integers(c, asked); !why.empty()) return why;
  if (const Slab slab = slab_of(asked, c); packs(c) && slab.rows == 0) {
    return "the packed operands of a tile take at most " + std::to_string(max_packed_bytes >> 20) + " MiB of workspace";
  } else if (!is_whole(slab, asked) && c.schedule != Schedule::data_parallel && c.schedule != Schedule::persistent) {
    return "packed operands of more than " + std::to_string(max_packed_bytes >> 20) +
           " MiB are multiplied without cutting tiles";
  }
  const bool cuts = c.splits > 1 || (c.grid > 0 && c.schedule != Schedule::persistent);
  if (cuts && tiles_of(c, p) * consumer_groups_of(c) > max_counters)
    return "split tiles x consumer groups is at most " + std::to_string(max_counters);
  return {};
}

bool stores_by_tma(const KernelConfig& c, const Problem& p) {
  return c.main_loop == MainLoop::sm90 && p.align_d == 16 && d_box_of(c, p).columns > 0;
}

int threads_of(const KernelConfig& c) { return c.warps * 32 + (c.main_loop == MainLoop::sm90 ? 128 : 0); }

std::size_t smem_bytes_of(const KernelConfig& c, const Problem& asked) {
  return smem_bytes_of_kernel(c, kernel_problem(asked, c));
}

std::size_t smem_bytes_of_kernel(const KernelConfig& c, const Problem& p) {
  const std::size_t element = size_of(p.a), stages = std::size_t(c.stages);
  // An N-major B comes in boxes of 64 columns.
  const bool whole_boxes = c.main_loop == MainLoop::sm90 && p.layout_b == Layout::row_major;
  const std::size_t columns = whole_boxes ? std::size_t(c.block_n + 63) / 64 * 64 : std::size_t(c.block_n);
  const std::size_t stage = (std::size_t(c.block_m) + columns) * std::size_t(c.block_k) * element;
  if (c.main_loop == MainLoop::sm80) {
    const int row_a = p.layout_a == Layout::row_major ? c.block_k : c.block_m;
    const int row_b = p.layout_b == Layout::column_major ? c.block_k : c.block_n;
    return stages * stage + (stages + 1) * queue_entry_bytes +
           std::max<std::size_t>(128, std::size_t(std::max(row_a, row_b)) * element);
  }
  const std::size_t staging = std::size_t(c.warps / 4) * 2 * 64 * 128;
  return stages * stage + staging + (stages + 1) * 16 + sm90_alignment_slack;
}

std::size_t hash_value(const KernelConfig& c) {
  std::size_t h = 0;
  for (const int x : {int(c.main_loop), c.block_m, c.block_n, c.block_k, c.group_m, c.stages, c.warps, c.cluster_m,
                      c.cluster_n, c.cluster_k, int(c.ping_pong), int(c.swap_ab), int(c.pack_a) * 2 + int(c.pack_b),
                      int(c.schedule), c.splits, c.grid})
    h = (h ^ std::size_t(x)) * 0x9e3779b97f4a7c15ull;
  return h ^ h >> 32;
}

}  // namespace jitgemm
