#include "kernels/launch_shape.hpp"

#include <array>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/device_info.hpp"
#include "core/problem.hpp"
#include "kernels/legality.hpp"
#include "kernels/parameters.hpp"
#include "random.hpp"
#include "schedule_checker.hpp"

using namespace jitgemm;
using namespace jitgemm::device;
using namespace jitgemm::test;

namespace {

constexpr std::array schedules{Schedule::data_parallel, Schedule::persistent,        Schedule::split_k,
                               Schedule::stream_k,      Schedule::stream_k_one_tile, Schedule::stream_k_two_tile};

struct Tile {
  MainLoop main_loop;
  int block_m, block_n, block_k, stages, warps;
};
constexpr std::array tiles{
    Tile{MainLoop::sm80, 128, 256, 64, 3, 8}, Tile{MainLoop::sm80, 64, 256, 32, 4, 4},
    Tile{MainLoop::sm80, 128, 128, 32, 4, 4}, Tile{MainLoop::sm80, 128, 64, 32, 4, 4},
    Tile{MainLoop::sm80, 64, 128, 32, 4, 4},  Tile{MainLoop::sm80, 128, 32, 32, 4, 4},
    Tile{MainLoop::sm80, 64, 32, 32, 5, 2},   Tile{MainLoop::sm80, 32, 64, 32, 5, 2},
    Tile{MainLoop::sm90, 128, 128, 64, 4, 8}, Tile{MainLoop::sm90, 128, 256, 64, 4, 8},
    Tile{MainLoop::sm90, 192, 96, 64, 4, 12},
};
struct Cluster {
  int m, n, k;
};
constexpr std::array clusters{Cluster{1, 1, 1}, Cluster{2, 1, 1}, Cluster{1, 2, 1},
                              Cluster{4, 2, 1}, Cluster{1, 1, 2}, Cluster{2, 1, 4}};

/// A problem, a configuration and, through the grid, a number of SMs.
void draw(Random& random, Problem& problem, KernelConfig& config) {
  const auto size = [&random] {
    if (random.between(0, 9) == 0) return random.pick(std::array{1, 31, 127, 128, 129, 255, 256, 257});
    return random.log_between(1, 8192);
  };
  problem = {};
  problem.m = size();
  problem.n = size();
  problem.batch = problem.m * problem.n < 1 << 22 && random.between(0, 1) == 0 ? random.between(2, 7) : 1;
  const Tile& tile = random.pick(tiles);
  problem.a.ld = problem.b.ld = 1 << 15;  // whole 16-byte rows, as TMA needs
  const int sm_count = random.between(1, 160);
  const std::array group_sizes{0, 1, 2, 3, 4, 6, 8, 16};
  config = {};
  const bool may_be_empty = tile.main_loop == MainLoop::sm80;
  problem.k = may_be_empty && random.between(0, 99) == 0 ? 0 : random.log_between(1, 32768);
  config.main_loop = tile.main_loop;
  config.block_m = tile.block_m;
  config.block_n = tile.block_n;
  config.block_k = tile.block_k;
  config.stages = tile.stages;
  config.warps = tile.warps;
  config.group_m = random.pick(group_sizes);
  config.schedule = random.pick(schedules);
  if (config.schedule == Schedule::split_k) {
    config.splits = random.log_between(1, 64);
  } else if (config.schedule != Schedule::data_parallel) {
    const std::array grids{0, sm_count, 2 * sm_count, 2 * random.between(1, sm_count), random.between(1, 700)};
    config.grid = random.pick(grids);
  }
  if (tile.main_loop == MainLoop::sm80) return;
  config.ping_pong = config.warps == 8 && config.block_n <= 160 && random.between(0, 3) == 0;
  const Cluster& cluster = random.pick(clusters);
  if (cluster.k > 1 && (config.schedule != Schedule::data_parallel || config.ping_pong)) return;
  config.cluster_m = cluster.m;
  config.cluster_n = cluster.n;
  config.cluster_k = cluster.k;
  config.grid *= cluster_size_of(config);
  problem.k = std::max<std::int64_t>(problem.k, cluster.k * config.block_k);  // a k-block each
}

void check_random_launches(int count) {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  const DeviceInfo device = device_info_for("sm_90a");
  ScheduleChecker checker;
  std::vector<unsigned char> seen;
  std::array<int, schedules.size()> split_some{};
  for (int i = 0; i < count; ++i) {
    Problem drawn;
    KernelConfig config;
    draw(random, drawn, config);
    const NormalProblem problem = normalise(drawn);
    if (const std::string why = why_illegal(config, problem, device); !why.empty()) {
      FAIL(to_string(problem) << " | " << to_string(config) << ": not legal: " << why);
    }
    const LaunchShape shape = launch_shape(problem, config);
    const Decomposition& d = shape.decomposition;
    const Partition partition = partition_of(config);
    const auto fail = [&](const std::string& rule) {
      FAIL(to_string(problem) << " | " << to_string(config) << " | " << describe(partition, d) << ": broken: " << rule);
    };

    const std::string rule = checker.broken_rule(partition, d);
    if (!rule.empty()) fail(rule);
    const std::string raster_rule = broken_raster(d.tiles_m, d.tiles_n, d.batch, config.group_m, seen);
    if (!raster_rule.empty()) fail("raster: " + raster_rule);

    const int tile_m = config.block_m * config.cluster_m, tile_n = config.block_n * config.cluster_n;
    if (d.tiles_m != (problem.m + tile_m - 1) / tile_m) fail("tiles cover the rows");
    if (d.tiles_n != (problem.n + tile_n - 1) / tile_n) fail("tiles cover the columns");
    const std::int64_t k_blocks = (problem.k + config.block_k - 1) / config.block_k;
    if (d.k_blocks != std::max<std::int64_t>(1, k_blocks)) fail("k-blocks cover k");
    if (shape.cluster != cluster_size_of(config)) fail("a cluster counts as one CTA");
    if (shape.grid != d.ctas * shape.cluster) fail("the grid has one CTA each");
    if (config.grid > 0 && shape.grid > config.grid) fail("the grid is no larger than asked for");
    const long long slots = slot_count(partition, d);
    const long long tile_bytes = 4LL * tile_m * tile_n;
    if ((long long)shape.partial_bytes < slots * tile_bytes) fail("the workspace holds every slot");
    const long long bound =
        config.schedule == Schedule::split_k ? (long long)tile_count(d) * config.splits : 2LL * d.ctas;
    if ((long long)shape.partial_bytes > bound * tile_bytes) fail("the workspace keeps its bound");
    const int consumers = config.main_loop == MainLoop::sm90 && !config.ping_pong ? config.warps / 4 : 1;
    const int groups = config.cluster_m * config.cluster_n * consumers;  // with counters of their own
    if (shape.counters < split_tile_count(partition, d) * groups) fail("every split tile has a counter");
    if (shape.counters > max_counters) fail("the counters fit their block");
    if (slots > 0) ++split_some[std::size_t(config.schedule)];
  }
  CHECK(split_some[std::size_t(Schedule::data_parallel)] == 0);
  CHECK(split_some[std::size_t(Schedule::persistent)] == 0);
  for (Schedule schedule :
       {Schedule::split_k, Schedule::stream_k, Schedule::stream_k_one_tile, Schedule::stream_k_two_tile}) {
    CHECK(split_some[std::size_t(schedule)] > count / 40);
  }
  WARN(count << " random launches, " << checker.works() << " pieces of work, JITGEMM_TEST_SEED=" << test_seed());
}

}  // namespace

TEST_CASE("Random launches cover every k-block once, within workspace and counters", "[schedule]") {
  check_random_launches(100'000);
}

TEST_CASE("A million random launches cover every k-block once, within workspace and counters", "[.full][schedule]") {
  check_random_launches(1'000'000);
}

TEST_CASE("A legal launch of any size stays within 32 bits", "[schedule]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  const DeviceInfo device = device_info_for("sm_90a");
  const int largest = 0x7fffffff;
  int legal = 0;
  for (int i = 0; i < 200'000; ++i) {
    Problem drawn;
    KernelConfig config;
    draw(random, drawn, config);
    drawn.m = random.log_between(1, largest);
    drawn.n = random.log_between(1, largest);
    drawn.k = random.log_between(1, largest);
    if (double(drawn.m) * double(drawn.n) > 0x1p50) drawn.batch = 1;
    drawn.a.ld = (drawn.k + 7) / 8 * 8;
    drawn.b.ld = (drawn.n + 7) / 8 * 8;
    // No matrix may have more than 2^50 bytes.
    if (std::max({double(drawn.m) * double(drawn.a.ld), double(drawn.k) * double(drawn.b.ld),
                  double(drawn.m) * double(drawn.n)}) > 0x1p49)
      continue;
    drawn.a.stride = drawn.b.stride = std::int64_t(1) << 32;
    config.group_m = random.pick(std::array{0, 1, 8, 64});
    const NormalProblem problem = normalise(drawn);
    if (!why_illegal(config, problem, device).empty()) continue;
    ++legal;
    const LaunchShape shape = launch_shape(problem, config);
    const Decomposition& d = shape.decomposition;
    CAPTURE(to_string(problem), to_string(config));
    REQUIRE(double(d.tiles_m) * d.tiles_n * d.batch * std::max(d.splits, 1) < 0x1p31);
    const int tiles = tile_count(d);
    for (int tile : {0, tiles / 2, tiles - 1}) {
      const TileIndex index = raster(tile, d, config.group_m);
      REQUIRE(index.m >= 0);
      REQUIRE(index.m < d.tiles_m);
      REQUIRE(index.n >= 0);
      REQUIRE(index.n < d.tiles_n);
    }
    const auto check_cta = [&](const auto& list) {
      Work work;
      bool more = list.first(work);
      for (int i = 0; i < 4 && more; ++i, more = list.next(work)) {
        REQUIRE(work.tile >= 0);
        REQUIRE(work.tile < tiles);
        REQUIRE(work.k_begin >= 0);
        REQUIRE(work.k_begin < work.k_end);
        REQUIRE(work.k_end <= d.k_blocks);
        REQUIRE(work.peer >= 0);
        REQUIRE(work.peer < work.peers);
      }
    };
    for (int cta : {0, d.ctas / 2, d.ctas - 1}) {
      switch (partition_of(config)) {
        case Partition::one_tile:
          check_cta(TileScheduler<Partition::one_tile>{d, cta});
          break;
        case Partition::whole_tiles:
          check_cta(TileScheduler<Partition::whole_tiles>{d, cta});
          break;
        case Partition::split_k:
          check_cta(TileScheduler<Partition::split_k>{d, cta});
          break;
        case Partition::stream_k:
          check_cta(TileScheduler<Partition::stream_k>{d, cta});
          break;
      }
    }
  }
  CHECK(legal > 10'000);
}
