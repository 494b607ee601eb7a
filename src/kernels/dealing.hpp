#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/groups.hpp"
#include "core/kernel_interface.hpp"
#include "jitgemm/kernel_config.hpp"
#include "kernels/parameters.hpp"
#include "util/integers.hpp"

namespace jitgemm {

// How a configuration divides D into tiles and deals them out: for launch_shape(), and for the planner, which asks for
// every candidate. In 64 bits, since the planner also asks for what is not legal.

/// Of a group's rows, those that a tile has.
inline int group_tile_rows(const KernelConfig& c) {
  return c.swap_ab ? c.block_n * c.cluster_n : c.block_m * c.cluster_m;
}
/// Where the device counts the rows of groups, the most that may be of tiles' rows, of all groups.
inline std::int64_t most_tile_rows(const KernelProblem& p, const KernelConfig& c) {
  return device::most_tile_rows(device::Grouping(p.grouping), p.batch, c.swap_ab ? p.n : p.m, group_tile_rows(c));
}

/// A tile is what one cluster of thread blocks computes at a time.
struct TileCounts {
  std::int64_t m, n, all;  ///< none where nothing is written: with one extent 0, nothing bounds the others
  std::int64_t k_blocks;   ///< of one tile; with nothing to multiply one, of zeros
};
inline TileCounts tile_counts(const KernelProblem& kernel_problem, const KernelConfig& c) {
  const KernelProblem& p = kernel_problem;
  const std::int64_t k_blocks = reads_ab(p) ? ceil_div(p.k, c.block_k) : 1;
  if (is_empty(p)) return {0, 0, 0, k_blocks};
  std::int64_t m = ceil_div(p.m, c.block_m * c.cluster_m), n = ceil_div(p.n, c.block_n * c.cluster_n);
  if (p.grouping == Grouping::offsets) {
    (c.swap_ab ? n : m) = most_tile_rows(p, c);
    return {m, n, m * n, k_blocks};
  }
  return {m, n, m * n * p.batch, k_blocks};
}

/// The same as it is expected where the device counts the rows of groups; `kernel_problem` is of expected_problem().
inline TileCounts expected_tile_counts(const KernelProblem& p, const KernelConfig& c) {
  TileCounts counts = tile_counts(p, c);
  if (!has_groups_of_rows(p) || counts.all == 0) return counts;
  const double rows = expected_tile_rows(c.swap_ab ? p.n : p.m, group_tile_rows(c));
  const std::int64_t across = c.swap_ab ? counts.m : counts.n;
  (c.swap_ab ? counts.n : counts.m) = std::llround(rows);
  counts.all = std::llround(rows * double(p.batch)) * across;
  return counts;
}

/// What device::Decomposition says of the schedule.
struct Dealing {
  std::int64_t ctas = 0, stream_k_tiles = 0, splits = 1;
  std::int64_t parts = 0;  ///< whole tiles or splits of them, which CTAs take in turn; else as many as CTAs
};
/// `ctas` is that of the grid; 0: as many as there are parts, each a whole tile or a split of one.
inline Dealing deal_out(const KernelConfig& c, const TileCounts& tiles, std::int64_t ctas) {
  Dealing dealing{.ctas = ctas};
  if (c.schedule == Schedule::split_k) dealing.splits = std::min<std::int64_t>(c.splits, tiles.k_blocks);
  const std::int64_t parts = tiles.all * dealing.splits;
  const bool cuts_ranges = c.schedule == Schedule::stream_k || c.schedule == Schedule::stream_k_one_tile ||
                           c.schedule == Schedule::stream_k_two_tile;
  if (ctas <= 0 || tiles.all == 0 || c.schedule == Schedule::data_parallel) {
    dealing.ctas = parts;
  } else if (!cuts_ranges) {
    dealing.ctas = std::min(ctas, parts);
  } else if (c.schedule == Schedule::stream_k) {
    dealing.stream_k_tiles = tiles.all;
  } else {
    dealing.stream_k_tiles = c.schedule == Schedule::stream_k_one_tile
                                 ? device::one_tile_stream_k_tiles(int(tiles.all), int(ctas))
                                 : device::two_tile_stream_k_tiles(int(tiles.all), int(ctas));
  }
  dealing.parts = cuts_ranges ? dealing.ctas : parts;
  return dealing;
}

}  // namespace jitgemm
