#include "core/kernel_config.hpp"

#include "core/kernel_problem.hpp"
#include "core/packing.hpp"
#include "core/problem.hpp"
#include "core/tensor_maps.hpp"
#include "core/type_rules.hpp"
#include "util/integers.hpp"

namespace jitgemm {
namespace {

std::string why_illegal_sm80(const device::KernelParameters& parameters, const Problem& p, const DeviceInfo& device) {
  if ((is_fp8(p.a) || is_fp8(p.b)) && device.compute_capability < 89) return "e4m3 and e5m2 need sm_89 or newer";
  const char* rule = device::sm80::broken_rule(parameters);
  return rule ? rule : "";
}

/// Thread blocks of all tiles, which those of whole clusters round up.
double tiles_of(const KernelConfig& c, const Problem& p) {
  return double(ceil_div(p.m, c.block_m * c.cluster_m)) * double(ceil_div(p.n, c.block_n * c.cluster_n)) *
         double(p.batch) * cluster_size_of(c);
}

std::string why_illegal_sm90(const KernelConfig& c, const device::KernelParameters& parameters, const Problem& asked,
                             const Problem& p, const DeviceInfo& device) {
  if (!device.has_wgmma()) return "the sm90 main loop needs an sm_90a device";
  if (!reads_ab(p)) return "the sm90 main loop needs an A and B to read: k and alpha are not zero";
  if (const char* rule = device::sm90::broken_rule(parameters)) return rule;
  if ((p.k + c.block_k - 1) / c.block_k < c.cluster_k) return "each block of a cluster that cuts k has a k-step";
  const TensorMaps maps = tensor_maps_of(slab_problem(asked, slab_of(asked, c)), c);
  for (const TensorMapSpec* map : {&maps.a, &maps.b, maps.has_d() ? &maps.d : nullptr})
    if (std::string why = map ? why_unmappable(*map) : ""; !why.empty()) return why;
  return {};
}

}  // namespace

int cluster_size_of(const KernelConfig& c) { return c.cluster_m * c.cluster_n * c.cluster_k; }

device::KernelParameters parameters_of(const KernelConfig& c, const Problem& p) {
  return {.block_m = c.block_m,
          .block_n = c.block_n,
          .block_k = c.block_k,
          .stages = c.stages,
          .warps = c.warps,
          .cluster_m = c.cluster_m,
          .cluster_n = c.cluster_n,
          .cluster_k = c.cluster_k,
          .ping_pong = c.ping_pong,
          .swap_ab = c.swap_ab,
          .whole_tiles = c.schedule == Schedule::data_parallel,
          .promoted = c.main_loop == MainLoop::sm90 && p.accumulation == Accumulation::promoted,
          .tensor_cores = !is_simt(p.a),
          .size_a = int(size_of(p.a)),
          .size_accumulator = int(size_of(accumulator_of(p))),
          .size_d = int(size_of(p.d)),
          .a_k_major = p.layout_a == Layout::row_major,
          .b_k_major = p.layout_b == Layout::column_major,
          .align_a = p.align_a,
          .align_b = p.align_b,
          .align_d = p.align_d};
}

int consumer_groups_of(const KernelConfig& c) {
  return c.main_loop == MainLoop::sm90 && !c.ping_pong ? c.warps / 4 : 1;
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
  const device::KernelParameters parameters = parameters_of(c, p);
  if (std::string why = c.main_loop == MainLoop::sm80 ? why_illegal_sm80(parameters, p, device)
                                                      : why_illegal_sm90(c, parameters, asked, p, device);
      !why.empty())
    return why;
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

int threads_of(const KernelConfig& c) { return c.warps * 32 + (c.main_loop == MainLoop::sm90 ? 128 : 0); }

std::size_t smem_bytes_of(const KernelConfig& c, const Problem& asked) {
  return smem_bytes_of_kernel(c, kernel_problem(asked, c));
}

std::size_t smem_bytes_of_kernel(const KernelConfig& c, const Problem& p) {
  const device::KernelParameters parameters = parameters_of(c, p);
  return std::size_t(c.main_loop == MainLoop::sm80 ? device::sm80::geometry(parameters).smem_bytes
                                                   : device::sm90::geometry(parameters).smem_bytes);
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
