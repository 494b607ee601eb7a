#include "plan/sm80/candidates.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/groups.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "geometry_sm80.cuh"
#include "kernels/dealing.hpp"
#include "kernels/parameters.hpp"

namespace jitgemm {
namespace {

/// block_k, here and below, in 16-bit elements.
constexpr KernelConfig portable(int block_m, int block_n, int block_k, int stages, int warps) {
  return {.main_loop = MainLoop::sm80,
          .block_m = block_m,
          .block_n = block_n,
          .block_k = block_k,
          .stages = stages,
          .warps = warps};
}

constexpr std::array portable_16_bit_tiles{
    // Triton's matrix multiplication tutorial, CUDA: those for fp16, and with deeper k-blocks for fp8.
    portable(128, 256, 64, 3, 8), portable(64, 256, 32, 4, 4), portable(128, 128, 32, 4, 4),
    portable(128, 64, 32, 4, 4), portable(64, 128, 32, 4, 4), portable(128, 32, 32, 4, 4), portable(64, 32, 32, 5, 2),
    portable(32, 64, 32, 5, 2),
    // Deeper k-blocks: half the barriers, for shared memory of 164 KiB and more.
    portable(256, 128, 64, 3, 8), portable(128, 128, 64, 3, 4), portable(128, 128, 64, 4, 8),
    portable(128, 64, 64, 3, 4), portable(64, 128, 64, 3, 4), portable(64, 64, 64, 3, 4), portable(64, 64, 64, 6, 4),
    // Few rows or columns, where many bytes in flight matter more than reuse.
    portable(128, 256, 32, 4, 8), portable(256, 64, 32, 4, 4), portable(32, 128, 64, 4, 4), portable(32, 64, 64, 4, 4),
    portable(64, 32, 64, 4, 4), portable(32, 32, 64, 6, 2)};

constexpr std::array portable_8_bit_tiles{portable(256, 64, 64, 4, 4), portable(64, 256, 64, 4, 8)};  // 4 warps spill

constexpr std::array split_counts{2, 3, 4, 5, 6, 8, 10, 12, 16};

// A part shorter than this spends more time filling its pipeline and adding partials than multiplying.
constexpr std::int64_t min_steps_per_part = 4;

// Of the L2, above which the raster order decides what is read again. No source is known.
constexpr double l2_for_any_order = 0.5;

/// Grids that fill the device: one CTA an SM, and two where two fit.
std::vector<int> grids(const KernelConfig& tile, const KernelProblem& problem, const DeviceInfo& device) {
  std::vector<int> grids{device.sm_count};
  const device::sm80::Geometry geometry = device::sm80::geometry(parameters_of(tile, problem));
  if (2 * std::size_t(geometry.smem_bytes) <= device.smem_per_sm) grids.push_back(2 * device.sm_count);
  return grids;
}

/// The tile with each way of dealing out the work that differs from the others and does not cut it too small.
std::vector<KernelConfig> with_schedules(const KernelConfig& tile, const TileCounts& work, const KernelProblem& problem,
                                         const DeviceInfo& device) {
  std::vector<KernelConfig> configs;
  const auto add = [&](Schedule schedule, int splits, int grid) {
    KernelConfig config = tile;
    config.schedule = schedule;
    config.splits = splits;
    config.grid = grid;
    configs.push_back(config);
  };
  if (has_groups(problem)) {
    for (int grid : grids(tile, problem, device)) add(Schedule::persistent, 1, grid);
    return configs;
  }
  configs.push_back(tile);
  for (int splits : split_counts) {
    const bool long_enough = work.k_blocks >= splits * min_steps_per_part;
    const bool needed = work.all < 2 * device.sm_count && work.all * splits <= 4 * device.sm_count;
    if (long_enough && needed && work.all > 0) add(Schedule::split_k, splits, 0);
  }
  for (int grid : grids(tile, problem, device)) {
    const std::int64_t tail = work.all % grid;
    const auto can_split = [&](std::int64_t tiles) { return tiles * work.k_blocks >= grid * min_steps_per_part; };
    if (work.all > grid) add(Schedule::persistent, 1, grid);
    if (tail == 0 || work.k_blocks < 2 * min_steps_per_part) continue;
    // With many waves, cutting every tile only costs: the hybrids cut the last ones.
    if (work.all < 4 * grid && can_split(work.all)) add(Schedule::stream_k, 1, grid);
    if (work.all > grid && can_split(tail)) add(Schedule::stream_k_one_tile, 1, grid);
    if (work.all >= 2 * grid) add(Schedule::stream_k_two_tile, 1, grid);
  }
  return configs;
}

/// The raster orders that differ in what they read from device memory: none do when one wave covers all tiles, or when
/// the operands stay in the L2 anyway.
std::vector<int> group_sizes(const TileCounts& work, const KernelProblem& problem, const DeviceInfo& device) {
  const int preferred = KernelConfig{}.group_m;
  const double operand_bytes =
      double(size_of(problem.a.type)) * double(problem.k) * (double(problem.m) + double(problem.n));
  if (work.all <= device.sm_count || work.m == 1 || work.n == 1 ||
      operand_bytes < l2_for_any_order * double(device.l2_bytes)) {
    return {preferred};
  }
  std::vector<int> sizes{preferred, 0};
  if (work.m > 4) sizes.push_back(4);
  if (work.m > 8) sizes.push_back(16);
  return sizes;
}

}  // namespace

std::vector<KernelConfig> portable_tiles(const DeviceInfo& device, DataType a) {
  Problem problem{.m = 4096, .n = 4096, .k = 4096, .a = {a}, .b = {.type = a, .layout = Layout::column_major}};
  problem.d.type = default_output(a);
  const NormalProblem typical = normalise(problem);
  std::vector<KernelConfig> tiles;
  const auto add_legal = [&](const auto& list) {
    for (KernelConfig tile : list) {
      tile.block_k = tile.block_k * 2 / int(size_of(a));
      if (why_illegal(tile, typical, device).empty()) tiles.push_back(tile);
    }
  };
  add_legal(portable_16_bit_tiles);
  if (size_of(a) == 1) add_legal(portable_8_bit_tiles);
  return tiles;
}

std::vector<KernelConfig> schedules_sm80(const KernelConfig& tile, const NormalProblem& asked,
                                         const DeviceInfo& device) {
  const KernelProblem problem = kernel_problem(asked, tile);
  return with_schedules(tile, tile_counts(problem, tile), problem, device);
}

std::vector<KernelConfig> candidates_sm80(const NormalProblem& asked, const DeviceInfo& device) {
  std::vector<KernelConfig> legal;
  for (KernelConfig tile : portable_tiles(device, asked.a.type)) {
    if (has_groups(asked)) tile.schedule = Schedule::persistent;
    if (!why_illegal(tile, asked, device).empty()) continue;
    const KernelProblem problem = kernel_problem(asked, tile);
    const TileCounts work = tile_counts(problem, tile);
    for (KernelConfig config : with_schedules(tile, work, problem, device)) {
      if (!why_illegal(config, asked, device).empty()) continue;
      for (int group_m : group_sizes(work, problem, device)) {
        config.group_m = group_m;
        legal.push_back(config);
      }
    }
  }
  return legal;
}

}  // namespace jitgemm
