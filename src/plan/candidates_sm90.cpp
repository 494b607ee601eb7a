#include "plan/candidates_sm90.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/kernel_config.hpp"
#include "core/kernel_problem.hpp"
#include "core/packing.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"

namespace jitgemm {
namespace {

/// A tile's rows and who multiplies them.
struct Rows {
  int block_m, warps;
  bool ping_pong;
};
constexpr std::array row_choices{Rows{64, 4, false},   Rows{128, 8, false}, Rows{256, 8, false},
                                 Rows{192, 12, false}, Rows{64, 8, true},   Rows{128, 8, true}};

struct Cluster {
  int m, n, k;
};
constexpr std::array clusters{Cluster{1, 1, 1}, Cluster{2, 1, 1}, Cluster{1, 2, 1}, Cluster{2, 2, 1}, Cluster{4, 1, 1},
                              Cluster{1, 4, 1}, Cluster{4, 2, 1}, Cluster{2, 4, 1}, Cluster{1, 1, 2}, Cluster{2, 1, 2},
                              Cluster{1, 2, 2}, Cluster{2, 2, 2}, Cluster{4, 1, 2}, Cluster{1, 4, 2}, Cluster{1, 1, 4},
                              Cluster{2, 1, 4}, Cluster{1, 2, 4}, Cluster{1, 1, 8}};

constexpr int widest = 256;
constexpr int most_stages = 10;
constexpr std::int64_t min_steps_per_part = 3;  // of k, below which a part is all prologue

std::int64_t ceil_div(std::int64_t x, std::int64_t y) { return (x + y - 1) / y; }
int round_up(std::int64_t x, int multiple) { return int(ceil_div(x, multiple) * multiple); }

/// As many stages as fit beside `blocks` - 1 other blocks of the kind on an SM.
int stages_that_fit(KernelConfig config, const Problem& problem, const DeviceInfo& device, int blocks) {
  const std::size_t reserved = 1024;  // of each block, by the driver
  for (config.stages = most_stages; config.stages >= 2; --config.stages) {
    const std::size_t bytes = smem_bytes_of(config, problem);
    if (bytes <= device.smem_per_block && std::size_t(blocks) * (bytes + reserved) <= device.smem_per_sm) return config.stages;
  }
  return 0;
}

/// The tile widths that fill one, two or three waves with the fewest columns to spare, and the widest ones where there are many.
/// An N-major operand comes in boxes of 64 columns.
std::vector<int> widths(const Rows& rows, const Cluster& cluster, const Problem& problem, const DeviceInfo& device) {
  const bool k_major = problem.layout_b == Layout::column_major;
  const int granularity = !k_major ? (problem.layout_a == Layout::column_major ? 32 : 64) : size_of(problem.a) == 1 ? 16 : 8;
  const int multiple = std::max(granularity, 8 * std::max(cluster.k, k_major ? cluster.m : 1));
  const std::int64_t row_blocks = round_up(ceil_div(problem.m, rows.block_m), cluster.m) * cluster.k * problem.batch;
  std::vector<int> result;
  const auto add = [&](std::int64_t width) {
    const int rounded = std::max(16, round_up(width, multiple));
    if (rounded <= widest && std::find(result.begin(), result.end(), rounded) == result.end()) result.push_back(rounded);
  };
  const int slots = usable_sms(cluster.m * cluster.n * cluster.k, device);
  for (int waves = 1; waves <= 3; ++waves) {
    const std::int64_t columns = waves * slots / row_blocks / cluster.n * cluster.n;
    if (columns > 0) add(std::max<std::int64_t>(ceil_div(problem.n, columns), std::min<std::int64_t>(problem.n, 32)));
  }
  const std::int64_t blocks = row_blocks * ceil_div(problem.n, widest);
  if (2 * blocks > 3 * device.sm_count)
    for (int width : {96, 128, 160, 192, 224, 256})
      if (width % granularity == 0 && (width > 96 || problem.accumulation == Accumulation::promoted)) add(width);
  return result;
}

/// Those with or without swapped operands.
void add_candidates(const Problem& asked, bool swap_ab, const DeviceInfo& device, std::vector<KernelConfig>& legal) {
  const KernelConfig form{.swap_ab = swap_ab, .pack_a = needs_packing_a(asked), .pack_b = needs_packing_b(asked)};
  const Problem problem = kernel_problem(asked, form);
  const double operand_bytes = double(size_of(problem.a)) * double(problem.k) * (double(problem.m) + double(problem.n));
  const bool outgrows_l2 = operand_bytes > 0.5 * double(device.l2_bytes);
  // Raster orders differ in what they read from device memory: not when one wave covers all tiles or the L2 holds the operands.
  const auto add = [&](KernelConfig config, bool waves) {
    std::vector<int> group_rows{8};  // tiles
    if (waves && outgrows_l2) group_rows.insert(group_rows.end(), {4, 16});
    for (int tiles : group_rows) {
      config.group_m = std::max(1, tiles / config.cluster_m);
      if (why_illegal(config, asked, device).empty()) legal.push_back(config);
    }
  };
  const std::int64_t k_steps = ceil_div(problem.k, 128 / int(size_of(problem.a)));
  for (const Rows& rows : row_choices) {
    const std::int64_t tiles_m = ceil_div(problem.m, rows.block_m);
    if (rows.block_m > 64 && problem.m <= rows.block_m / 2) continue;
    for (const Cluster& cluster : clusters) {
      const int size = cluster.m * cluster.n * cluster.k, slots = usable_sms(size, device);
      // Rows of tiles that exist only to fill a cluster: a fifth at most.
      if (5 * (round_up(tiles_m, cluster.m) - tiles_m) > tiles_m) continue;
      if (cluster.k > 1 && k_steps < cluster.k * min_steps_per_part) continue;
      for (int width : widths(rows, cluster, problem, device)) {
        const std::int64_t tiles_n = ceil_div(problem.n, width);
        if (5 * (round_up(tiles_n, cluster.n) - tiles_n) > tiles_n) continue;
        KernelConfig config{.main_loop = MainLoop::sm90,
                            .block_m = rows.block_m,
                            .block_n = width,
                            .block_k = 128 / int(size_of(problem.a)),
                            .warps = rows.warps,
                            .cluster_m = cluster.m,
                            .cluster_n = cluster.n,
                            .cluster_k = cluster.k,
                            .ping_pong = rows.ping_pong,
                            .swap_ab = swap_ab,
                            .pack_a = form.pack_a,
                            .pack_b = form.pack_b};
        const std::int64_t blocks =
            round_up(tiles_m, cluster.m) * round_up(tiles_n, cluster.n) * std::int64_t(cluster.k) * problem.batch;
        if (cluster.k > 1 && blocks > 2 * slots) continue;
        config.stages = stages_that_fit(config, asked, device, 1);
        if (config.stages < 3) continue;
        if (!rows.ping_pong) add(config, blocks > slots);
        if (blocks_per_sm_of(config, problem) == 2 && blocks > slots) {
          KernelConfig two = config;
          two.stages = stages_that_fit(config, asked, device, 2);
          if (two.stages >= 3) add(two, true);
        }
        if (cluster.k > 1) continue;
        const auto with = [&](Schedule schedule, int splits, int grid) {
          KernelConfig other = config;
          other.schedule = schedule;
          other.splits = splits;
          other.grid = grid;
          add(other, blocks > slots);
        };
        if (blocks > slots) with(Schedule::persistent, 1, slots);
        if (rows.ping_pong) continue;
        for (int splits : {2, 3, 4, 6, 8})
          if (k_steps >= 2 * splits * min_steps_per_part && blocks * splits <= 2 * slots) with(Schedule::split_k, splits, 0);
        if (size > 2 || k_steps < 8 || blocks % slots == 0) continue;
        if (blocks < 2 * slots && blocks * k_steps >= slots * min_steps_per_part) with(Schedule::stream_k, 1, slots);
        if (blocks > 2 * slots && blocks < 8 * slots) with(Schedule::stream_k_two_tile, 1, slots);
      }
    }
  }
}

}  // namespace

int usable_sms(int cluster_size, const DeviceInfo& device) {
  const int usable = cluster_size <= 2 ? device.sm_count : device.sm_count * 10 / 11;
  return std::max(1, usable / cluster_size) * cluster_size;
}

std::vector<KernelConfig> candidates_sm90(const Problem& asked, const DeviceInfo& device) {
  std::vector<KernelConfig> legal;
  if (!device.has_wgmma() || !reads_ab(asked)) return legal;
  for (bool swap_ab : {false, true}) add_candidates(asked, swap_ab, device, legal);
  return legal;
}

}  // namespace jitgemm
