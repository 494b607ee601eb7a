#include "plan/sm90/candidates.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/groups.hpp"
#include "core/pairing.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "geometry_sm90.cuh"
#include "kernels/dealing.hpp"
#include "kernels/kernel_problem.hpp"
#include "kernels/legality.hpp"
#include "kernels/packing.hpp"
#include "kernels/parameters.hpp"
#include "kernels/sm90/residence.hpp"
#include "util/integers.hpp"

namespace jitgemm {
namespace {

/// A tile's rows and who multiplies them.
struct Rows {
  int block_m, warps;
  bool ping_pong;
};
constexpr std::array row_choices{Rows{64, 4, false}, Rows{128, 8, false}, Rows{256, 8, false}, Rows{192, 12, false},
                                 Rows{64, 8, true},  Rows{128, 8, true},  Rows{192, 8, true}};

struct Cluster {
  int m, n, k;
};
constexpr std::array clusters{Cluster{1, 1, 1}, Cluster{2, 1, 1}, Cluster{1, 2, 1}, Cluster{2, 2, 1}, Cluster{4, 1, 1},
                              Cluster{1, 4, 1}, Cluster{4, 2, 1}, Cluster{2, 4, 1}, Cluster{1, 1, 2}, Cluster{2, 1, 2},
                              Cluster{1, 2, 2}, Cluster{2, 2, 2}, Cluster{4, 1, 2}, Cluster{1, 4, 2}, Cluster{1, 1, 4},
                              Cluster{2, 1, 4}, Cluster{1, 2, 4}, Cluster{1, 1, 8}};

constexpr int most_stages = 12;
constexpr int raster_rows = 8;  // of tiles; 4 and 16 take 0.98 to 1.01 times as long (tools/results/NOTES.md, 23)
constexpr std::int64_t min_steps_per_part = 3;  // of k, below which a part is all prologue

/// As many stages as fit beside `blocks` - 1 other blocks of the kind on an SM.
int stages_that_fit(KernelConfig config, const KernelProblem& problem, const DeviceInfo& device, int blocks) {
  const auto bytes_with = [&](int stages) {
    config.stages = stages;
    return std::size_t(device::sm90::geometry(parameters_of(config, problem)).smem_bytes);
  };
  const std::size_t fixed = bytes_with(0), stage = bytes_with(1) - fixed;
  const std::size_t room =
      std::min(device.smem_per_block, device.smem_per_sm / std::size_t(blocks) - reserved_smem_bytes);
  return room < fixed ? 0 : int(std::min<std::size_t>(most_stages, (room - fixed) / stage));
}

/// A few tile widths.
struct Widths {
  int widest;
  std::array<int, 12> values{};
  int count = 0;

  void add(int width) {
    if (width <= widest && std::find(values.begin(), values.begin() + count, width) == values.begin() + count)
      values[std::size_t(count++)] = width;
  }
  const int* begin() const { return values.data(); }
  const int* end() const { return values.data() + count; }
};

/// Those that fill one, two or three waves with the fewest columns to spare. Where there are few tiles and a long k,
/// those that fill a wave once they are split; where there are many tiles, the widest ones and the two that leave least
/// of the last wave idle. An N-major operand comes in boxes of 64 columns.
Widths widths(int widest, const Cluster& cluster, std::int64_t row_blocks, int slots, const KernelProblem& problem,
              bool columns_are_pairs, bool swapped_groups, const DeviceInfo& device) {
  if (swapped_groups) {
    // One tile for all rows of most groups, or for a part of them.
    Widths of_rows{.widest = widest};
    for (const std::int64_t parts : {1, 2, 3})
      for (const std::int64_t rows : {problem.n, problem.n + problem.n / 4, problem.n + problem.n / 2})
        of_rows.add(int(std::min<std::int64_t>(std::max<std::int64_t>(16, round_up(ceil_div(rows, parts), 16)), 512)));
    for (const int width : {64, 128, 256}) of_rows.add(width);
    return of_rows;
  }
  const bool k_major = problem.b.layout == Layout::column_major;
  const int granularity = !k_major ? 32 : size_of(problem.a.type) == 1 || columns_are_pairs ? 16 : 8;
  const int summed_at_a_time = columns_are_pairs ? 16 : 8;  // columns, by each block of a cluster that splits k
  const int multiple = std::max(granularity, summed_at_a_time * cluster.k);
  Widths result{.widest = widest};
  if (has_own_scales_d(problem)) {  // of whole blocks of 128 columns
    for (const int width : {128 * cluster.k, 256}) result.add(width);
    return result;
  }
  // The narrowest tiles of so many waves; too wide a one if there is none.
  const auto width_of = [&](std::int64_t waves, int splits = 1) {
    const std::int64_t columns = quotient(quotient(waves * slots, row_blocks * splits), cluster.n) * cluster.n;
    if (columns == 0) return widest + 1;
    const std::int64_t width =
        std::max<std::int64_t>(ceil_div(problem.n, columns), std::min<std::int64_t>(problem.n, 32));
    return int(std::min<std::int64_t>(std::max<std::int64_t>(16, round_up(width, multiple)), widest + 1));
  };
  for (int waves = 1; waves <= 3; ++waves) result.add(width_of(waves));
  if (problem.b.scaling == Scaling::block_128x128) result.add(128);  // others' columns may lie in two blocks
  const std::int64_t blocks = row_blocks * ceil_div(problem.n, widest);
  const std::int64_t k_blocks = ceil_div(problem.k, block_k_sm90(problem.a.type));
  for (int splits = 2; splits <= splits_of(k_blocks, cluster.k, quotient(slots, std::max<std::int64_t>(1, blocks)));
       splits *= 2)
    result.add(width_of(1, splits));
  if (2 * blocks > 3 * device.sm_count)
    for (int width : {96, 128, 160, 192, 224, 256})
      if (width % granularity == 0 && (width > 96 || problem.accumulation == Accumulation::promoted))
        result.add(int(round_up(width, multiple)));
  // Larger clusters were the fastest where there are few tiles.
  if (blocks > 3 * slots && cluster.m * cluster.n * cluster.k <= 2) {
    struct Full {
      std::int64_t columns;  // of the CTA with most tiles
      int width;
    };
    Full best{std::numeric_limits<std::int64_t>::max(), widest + 1}, second = best;
    const std::int64_t fewest = ceil_div(blocks, slots);
    for (std::int64_t waves = fewest; waves < std::min(2 * fewest, fewest + 8); ++waves) {
      const int width = width_of(waves);
      const Full full{waves * width, width};
      if (width > widest) continue;
      if (full.columns < best.columns) {
        second = std::exchange(best, full);
      } else if (full.columns < second.columns) {
        second = full;
      }
    }
    result.add(best.width);
    result.add(second.width);
  }
  return result;
}

void add_tiles(const DeviceInfo& device, TilesSm90& form) {
  const KernelProblem& problem = form.problem;
  const std::int64_t k_blocks = ceil_div(problem.k, block_k_sm90(problem.a.type));
  for (const Rows& rows : row_choices) {
    const std::int64_t tiles_m = ceil_div(problem.m, rows.block_m);
    KernelConfig tile = form.form;
    tile.block_m = rows.block_m, tile.warps = rows.warps, tile.ping_pong = rows.ping_pong;
    const int widest = device::sm90::widest_tile(parameters_of(tile, problem));
    if (rows.block_m > 64 && problem.m <= rows.block_m / 2) continue;
    for (const Cluster& cluster : clusters) {
      // Rows of tiles that exist only to fill a cluster: a fifth at most.
      if (5 * (round_up(tiles_m, cluster.m) - tiles_m) > tiles_m) continue;
      if (cluster.k > 1 && (rows.ping_pong || has_groups(problem) || k_blocks < cluster.k * min_steps_per_part))
        continue;
      const int slots = usable_sms(cluster.m * cluster.n * cluster.k, device);
      const std::int64_t row_blocks = round_up(tiles_m, cluster.m) * cluster.k * problem.batch;
      if (cluster.k > 1 && row_blocks * ceil_div(problem.n, widest) > 2 * slots) continue;  // with all widths
      const bool columns_are_pairs = has_pairs(problem) && !form.form.swap_ab;
      const bool swapped_groups = has_groups_of_rows(problem) && form.form.swap_ab;
      for (int width : widths(widest, cluster, row_blocks, slots, problem, columns_are_pairs, swapped_groups, device)) {
        const std::int64_t tiles_n = ceil_div(problem.n, width), column_blocks = round_up(tiles_n, cluster.n);
        if (5 * (column_blocks - tiles_n) > tiles_n) continue;
        const std::int64_t blocks = row_blocks * column_blocks;
        if (cluster.k > 1 && blocks > 2 * slots) continue;
        if (rows.ping_pong && blocks <= slots) continue;
        tile.block_n = width;
        tile.cluster_m = cluster.m, tile.cluster_n = cluster.n, tile.cluster_k = cluster.k;
        tile.group_m = std::max(1, raster_rows / cluster.m);
        tile.stages = stages_that_fit(tile, problem, device, 1);
        if (tile.stages >= fewest_stages) form.tiles.push_back(tile);
      }
    }
  }
}

}  // namespace

std::array<TilesSm90, 2> tiles_sm90(const NormalProblem& asked, const DeviceInfo& device) {
  const auto tiles_of = [&](bool swap_ab) {
    const KernelConfig form{.main_loop = MainLoop::sm90,
                            .block_k = block_k_sm90(asked.a.type),
                            .swap_ab = swap_ab,
                            .pack_a = needs_packing_a(asked) && !has_groups(asked),
                            .pack_b = needs_packing_b(asked) && !has_groups(asked)};
    if (!device.has_wgmma() || !reads_ab(asked)) return TilesSm90{form, kernel_problem(asked, form), true};
    KernelConfig usual = form;
    usual.block_m = usual.block_n = 128;
    const Slab slab = slab_of(asked, usual);
    TilesSm90 tiles{form, kernel_problem(slab_problem(asked, slab), form), slab_count(asked, slab) == 1};
    tiles.tiles.reserve(256);
    add_tiles(device, tiles);
    return tiles;
  };
  return {tiles_of(false), tiles_of(true)};
}

std::vector<KernelConfig> clusters_sm90(const KernelConfig& kernel) {
  std::vector<KernelConfig> all;
  for (const Cluster& cluster : clusters) {
    if (cluster.k != kernel.cluster_k) continue;
    all.push_back(kernel);
    all.back().cluster_m = cluster.m, all.back().cluster_n = cluster.n;
  }
  return all;
}

std::vector<KernelConfig> schedules_sm90(const KernelConfig& tile, const KernelProblem& problem,
                                         const DeviceInfo& device) {
  std::vector<KernelConfig> result;
  const int size = cluster_size_of(tile), slots = usable_sms(size, device);
  const TileCounts tiles = tile_counts(problem, tile);
  const std::int64_t blocks = tiles.all * size, k_blocks = tiles.k_blocks;
  const auto with = [&](Schedule schedule, int splits, int grid) {
    KernelConfig config = tile;
    config.schedule = schedule;
    config.splits = splits;
    config.grid = grid;
    config.stages = std::min(config.stages, stages_that_fit(config, problem, device, 1));
    if (config.stages >= std::min(fewest_stages, tile.stages)) result.push_back(config);
  };
  if (has_groups(problem)) {
    with(Schedule::persistent, 1, slots);
    return result;
  }
  if (!tile.ping_pong) with(Schedule::data_parallel, 1, 0);
  if (may_share_sm(size) && device::sm90::geometry(parameters_of(tile, problem)).ctas_per_sm == 2 && blocks > slots) {
    KernelConfig two = tile;
    two.stages = stages_that_fit(two, problem, device, 2);
    if (two.stages >= fewest_stages) result.push_back(two);
  }
  if (tile.cluster_k == 1 && blocks > slots) with(Schedule::persistent, 1, slots);
  if (tile.ping_pong) return result;
  const int most = splits_of(k_blocks, tile.cluster_k, quotient(2 * slots, std::max<std::int64_t>(1, blocks)));
  for (int splits : {2, 3, 4, 6, most_splits})
    if (splits <= most) with(Schedule::split_k, splits, 0);
  if (tile.cluster_k > 1 || size > 2 || k_blocks < 8 || blocks % slots == 0) return result;
  if (blocks < 2 * slots && blocks * k_blocks >= slots * min_steps_per_part) with(Schedule::stream_k, 1, slots);
  if (blocks > 2 * slots && blocks < 8 * slots) with(Schedule::stream_k_two_tile, 1, slots);
  return result;
}

std::vector<KernelConfig> candidates_sm90(const NormalProblem& asked, const DeviceInfo& device) {
  std::vector<KernelConfig> legal;
  for (const TilesSm90& form : tiles_sm90(asked, device)) {
    for (const KernelConfig& tile : form.tiles) {
      for (const KernelConfig& config : schedules_sm90(tile, form.problem, device)) {
        if (why_illegal(config, asked, device).empty()) legal.push_back(config);
      }
    }
  }
  return legal;
}

}  // namespace jitgemm
