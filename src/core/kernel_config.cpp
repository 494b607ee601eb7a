#include "core/kernel_config.hpp"

#include <algorithm>

#include "core/problem.hpp"

namespace jitgemm {
namespace {

constexpr std::size_t sm90_alignment_slack = 1024, sm80_alignment_slack = 512;  // bytes
constexpr std::size_t queue_entry_bytes = 32;  // mainloop_sm80.cuh's WorkQueue

bool is_power_of_two(int x) { return x > 0 && (x & (x - 1)) == 0; }

std::string why_illegal_sm80(const KernelConfig& c, const Problem& p) {
  if (c.block_k != 32 && c.block_k != 64) return "block_k is 32 or 64";
  if (!is_power_of_two(c.block_m) || !is_power_of_two(c.block_n) || c.block_m < 32 || c.block_n < 32 ||
      c.block_m > 256 || c.block_n > 256)
    return "block_m and block_n are powers of two in 32..256";
  if (!is_power_of_two(c.warps) || c.warps > 16) return "warps is a power of two, 16 at most";
  const auto [warps_m, warps_n] = warp_grid_of(c);
  if (c.block_m / warps_m % 16 != 0 || c.block_n / warps_n % 16 != 0 || warps_m * warps_n != c.warps)
    return "a warp's tile is a multiple of 16 x 16";
  for (const int elements : {c.block_m * c.block_k, c.block_n * c.block_k})
    if (elements / 8 % (c.warps * 32) != 0) return "every thread copies the same number of 16-byte chunks";
  // A thread has 255 registers; the fragments and addresses take about 100.
  if (c.block_m * c.block_n / (c.warps * 32) > 128) return "a thread holds at most 128 accumulators";
  if (std::min(p.align_a, p.align_b) == 2 && c.block_m * c.block_n / (c.warps * 32) > 64)
    return "a thread that holds 2-byte aligned operands in registers holds at most 64 accumulators";
  if (c.stages < 2 || c.stages > 8) return "at least 2 stages, and 8 at most";
  return {};
}

std::string why_illegal_sm90(const KernelConfig& c, const Problem& p, const DeviceInfo& device) {
  if (!device.has_wgmma()) return "the sm90 main loop needs an sm_90a device";
  if (!reads_ab(p)) return "the sm90 main loop needs an A and B to read: k and alpha are not zero";
  if (c.block_k != 64) return "block_k is 64: one 128-byte swizzled row";
  if (c.warps != 8 || c.block_m != 128) return "block_m is 64 rows for each of two consumer warpgroups";
  if (c.block_n != 128 && c.block_n != 256) return "block_n is 128 or 256";
  if (p.align_a != 16 || p.align_b != 16) return "TMA loads need 16-byte aligned rows";
  if (c.stages < 2 || c.stages > 16) return "at least 2 stages, and 16 at most";
  return {};
}

}  // namespace

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

std::string why_illegal(const KernelConfig& c, const Problem& p, const DeviceInfo& device) {
  if (std::string why = c.main_loop == MainLoop::sm80 ? why_illegal_sm80(c, p) : why_illegal_sm90(c, p, device);
      !why.empty())
    return why;
  if (c.cluster_m != 1 || c.cluster_n != 1) return "clusters are 1 x 1";
  if (c.group_m < 0 || c.group_m > 64) return "group_m is 0..64";
  if (c.splits < 1 || c.splits > 64) return "splits is 1..64";
  if (c.splits > 1 && c.schedule != Schedule::split_k) return "only split_k has splits";
  if (c.grid < 0 || c.grid > 65535) return "grid is 0..65535";
  if (c.grid > 0 && c.schedule == Schedule::data_parallel) return "data_parallel has no grid of its own";
  if (smem_bytes_of(c, p) > device.smem_per_block)
    return "the stages need " + std::to_string(smem_bytes_of(c, p)) + " bytes of shared memory, the device has " +
           std::to_string(device.smem_per_block);
  const auto tiles = ((p.m + c.block_m - 1) / c.block_m) * ((p.n + c.block_n - 1) / c.block_n);
  if (tiles * c.splits >= std::int64_t{1} << 30) return "tiles x splits is less than 2^30";
  if (c.grid > 0 && tiles * ((p.k + c.block_k - 1) / c.block_k) >= std::int64_t{1} << 30)
    return "tiles x k-steps is less than 2^30";
  const bool cuts = c.splits > 1 || (c.grid > 0 && c.schedule != Schedule::persistent);
  if (cuts && tiles * (c.main_loop == MainLoop::sm90 ? 2 : 1) > max_counters)
    return "split tiles x consumer groups is at most " + std::to_string(max_counters);
  return {};
}

int threads_of(const KernelConfig& c) { return c.warps * 32 + (c.main_loop == MainLoop::sm90 ? 128 : 0); }

std::size_t smem_bytes_of(const KernelConfig& c, const Problem& p) {
  const auto stage = std::size_t(c.block_m + c.block_n) * std::size_t(c.block_k) * size_of(p.a);
  if (c.main_loop == MainLoop::sm80) return std::size_t(c.stages) * stage + std::size_t(c.stages + 1) * queue_entry_bytes + sm80_alignment_slack;
  const std::size_t staging = p.align_d == 16 ? 2 * 2 * 64 * 128 : 0;
  const std::size_t barriers = std::size_t(c.stages) * 16;
  return std::size_t(c.stages) * stage + staging + barriers + sm90_alignment_slack;
}

std::size_t hash_value(const KernelConfig& c) {
  std::size_t h = 0;
  for (const int x : {int(c.main_loop), c.block_m, c.block_n, c.block_k, c.group_m, c.stages, c.warps, c.cluster_m,
                      c.cluster_n, int(c.schedule), c.splits, c.grid})
    h = (h ^ std::size_t(x)) * 0x9e3779b97f4a7c15ull;
  return h ^ h >> 32;
}

}  // namespace jitgemm
