#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/device_info.hpp"
#include "core/kernel_config.hpp"
#include "core/launch_shape.hpp"
#include "core/problem.hpp"
#include "random.hpp"

using namespace jitgemm;
using namespace jitgemm::device;
using jitgemm::test::Random;
using jitgemm::test::test_seed;

namespace {

std::string describe(Partition partition, const Decomposition& d) {
  const char* names[] = {"whole_tiles", "split_k", "stream_k"};
  return std::string(names[int(partition)]) + " tiles=" + std::to_string(d.tiles_m) + "x" + std::to_string(d.tiles_n) +
         " k_steps=" + std::to_string(d.k_steps) + " programs=" + std::to_string(d.programs) +
         " stream_k_tiles=" + std::to_string(d.stream_k_tiles) + " splits=" + std::to_string(d.splits);
}

/// Follows every program of a decomposition. Keeps its buffers from one check to the next.
class ScheduleChecker {
 public:
  /// Empty, or the first rule that is broken.
  std::string broken_rule(Partition partition, const Decomposition& d) {
    switch (partition) {
      case Partition::whole_tiles:
        return check<Partition::whole_tiles>(d);
      case Partition::split_k:
        return check<Partition::split_k>(d);
      case Partition::stream_k:
        return check<Partition::stream_k>(d);
    }
    return "unknown partition";
  }

  long long works() const { return works_; }  ///< followed so far

 private:
  struct Piece {
    Work work;
    bool operator<(const Piece& other) const {
      return work.tile != other.work.tile ? work.tile < other.work.tile : work.peer < other.work.peer;
    }
  };

  template <Partition PARTITION>
  std::string check(const Decomposition& d) {
    const int tiles = tile_count(d);
    const long long slots = slot_count(PARTITION, d);
    tile_done_.assign(std::size_t(tiles), 0);
    slot_used_.assign(std::size_t(slots), 0);
    pieces_.clear();
    const long long cut_steps = (long long)d.stream_k_tiles * d.k_steps;

    for (int program = 0; program < d.programs; ++program) {
      const WorkList<PARTITION> list{d, program};
      bool whole_tiles_begun = false;
      long long steps_of_cut_tiles = 0;
      Work work;
      for (bool more = list.first(work); more; more = list.next(work)) {
        ++works_;
        if (work.tile < 0 || work.tile >= tiles) return "a tile exists";
        if (work.k_begin < 0 || work.k_end > d.k_steps) return "k-steps are within the tile";
        if (work.k_begin >= work.k_end && d.k_steps > 0) return "work is not empty";
        if (work.peer < 0 || work.peer >= work.peers) return "a peer is one of the peers";
        if (work.tile < d.stream_k_tiles) {
          if (whole_tiles_begun) return "cut tiles come first";
          steps_of_cut_tiles += work.k_end - work.k_begin;
        } else {
          whole_tiles_begun = true;
        }
        if (work.peers == 1) {
          if (work.k_begin != 0 || work.k_end != d.k_steps) return "a tile with one peer is whole";
          if (tile_done_[std::size_t(work.tile)]++) return "a tile is computed once";
          continue;
        }
        if (work.tile >= cut_tile_count(PARTITION, d)) return "a cut tile has a counter";
        const long long slot = slot_of<PARTITION>(d, work.tile, work.peer);
        if (slot < 0 || slot >= slots) return "a slot lies in the workspace";
        if (slot_used_[std::size_t(slot)]++) return "a slot has one owner";
        pieces_.push_back({work});
      }
      if (PARTITION == Partition::stream_k && steps_of_cut_tiles != cut_steps / d.programs &&
          steps_of_cut_tiles != cut_steps / d.programs + 1) {
        return "programs share the cut tiles evenly";
      }
    }

    std::sort(pieces_.begin(), pieces_.end());
    for (std::size_t i = 0; i < pieces_.size();) {
      const int tile = pieces_[i].work.tile, peers = pieces_[i].work.peers;
      int k = 0, peer = 0;
      for (; i < pieces_.size() && pieces_[i].work.tile == tile; ++i, ++peer) {
        const Work& work = pieces_[i].work;
        if (work.peers != peers) return "peers agree on how many they are";
        if (work.peer != peer) return "peers are numbered 0, 1, ...";
        if (work.k_begin != k) return "peers follow each other in k order without gap or overlap";
        k = work.k_end;
      }
      if (peer != peers || k != d.k_steps) return "the peers of a tile cover it";
      if (tile_done_[std::size_t(tile)]++) return "a tile is computed once";
    }
    if (std::find(tile_done_.begin(), tile_done_.end(), 0) != tile_done_.end()) return "every tile is computed";
    return "";
  }

  std::vector<unsigned char> tile_done_, slot_used_;
  std::vector<Piece> pieces_;
  long long works_ = 0;
};

/// Empty, or what is wrong with the raster order of a grid.
std::string broken_raster(int tiles_m, int tiles_n, int batch, int group_m, std::vector<unsigned char>& seen) {
  const Decomposition d{tiles_m, tiles_n, batch, 1, 1, 0, 1, group_m};
  seen.assign(std::size_t(tile_count(d)), 0);
  for (int tile = 0; tile < tile_count(d); ++tile) {
    const TileIndex index = raster(tile, d, group_m);
    if (index.m < 0 || index.m >= tiles_m || index.n < 0 || index.n >= tiles_n) return "a tile lies in the grid";
    if (index.batch != tile / (tiles_m * tiles_n)) return "one matrix comes after the other";
    if (seen[std::size_t((index.batch * tiles_m + index.m) * tiles_n + index.n)]++) return "a tile comes once";
  }
  return "";
}

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
constexpr std::array clusters{Cluster{1, 1, 1}, Cluster{2, 1, 1}, Cluster{1, 2, 1}, Cluster{4, 2, 1},
                              Cluster{1, 1, 2}, Cluster{2, 1, 4}};

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
  problem.lda = problem.ldb = 1 << 15;  // whole 16-byte rows, as TMA needs
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
  problem.k = std::max<std::int64_t>(problem.k, cluster.k * config.block_k);  // a k-step each
}

void check_random_launches(int count) {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  const DeviceInfo device = device_info_for("sm_90a");
  ScheduleChecker checker;
  std::vector<unsigned char> seen;
  std::array<int, schedules.size()> split_some{};
  for (int i = 0; i < count; ++i) {
    Problem problem;
    KernelConfig config;
    draw(random, problem, config);
    problem = normalise(problem);
    if (const std::string why = why_illegal(config, problem, device); !why.empty()) {
      FAIL(to_string(problem) << " | " << to_string(config) << ": not legal: " << why);
    }
    const LaunchShape shape = launch_shape(problem, config);
    const Decomposition& d = shape.decomposition;
    const Partition partition = partition_of(config.schedule);
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
    const std::int64_t k_steps = (problem.k + config.block_k - 1) / config.block_k;
    if (d.k_steps != std::max<std::int64_t>(1, k_steps)) fail("k-steps cover k");
    if (shape.cluster != cluster_size_of(config)) fail("a cluster is one program");
    if (shape.grid != d.programs * shape.cluster) fail("the grid has one program each");
    if (config.grid >= shape.cluster && shape.grid > config.grid) fail("the grid is no larger than asked for");
    const long long slots = slot_count(partition, d);
    const long long tile_bytes = 4LL * tile_m * tile_n;
    if ((long long)shape.partial_bytes < slots * tile_bytes) fail("the workspace holds every slot");
    const long long bound =
        config.schedule == Schedule::split_k ? (long long)tile_count(d) * config.splits : 2LL * d.programs;
    if ((long long)shape.partial_bytes > bound * tile_bytes) fail("the workspace keeps its bound");
    const int consumers = config.main_loop == MainLoop::sm90 && !config.ping_pong ? config.warps / 4 : 1;
    const int groups = config.cluster_m * config.cluster_n * consumers;  // with counters of their own
    if (shape.counters < cut_tile_count(partition, d) * groups) fail("every cut tile has a counter");
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

int distinct_rows_and_columns(int first_tiles, int tiles_m, int tiles_n, int group_m) {
  std::set<int> rows, columns;
  for (int tile = 0; tile < first_tiles; ++tile) {
    const TileIndex index = raster(tile, {tiles_m, tiles_n, 1, 1, 1, 0, 1, group_m}, group_m);
    rows.insert(index.m);
    columns.insert(index.n);
  }
  return int(rows.size() + columns.size());
}

}  // namespace

TEST_CASE("A divisor known before the launch divides as the operator does", "[schedule]") {
  for (int divisor = 1; divisor <= 300; ++divisor) {
    const Divisor by(divisor);
    for (int x = 0; x <= 2000; ++x)
      if (x / by != x / divisor) FAIL(x << " / " << divisor << " is " << x / by);
  }
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  const int largest = 0x7fffffff;
  for (int i = 0; i < 1'000'000; ++i) {
    const int divisor = int(random.log_between(1, largest)), multiple = largest / divisor * divisor;
    const Divisor by(divisor);
    for (const int x : {int(random.log_between(1, largest)), largest, multiple, multiple - 1, divisor, divisor - 1})
      if (x / by != x / divisor) FAIL(x << " / " << divisor << " is " << x / by);
  }
}

TEST_CASE("Ranges known before the launch are those of range_begin", "[schedule]") {
  for (int total = 0; total <= 60; ++total) {
    for (int parts = 1; parts <= 70; ++parts) {
      const Ranges ranges(total, parts);
      CAPTURE(total, parts);
      for (int i = 0; i <= parts; ++i) REQUIRE(ranges.begin(i) == range_begin(total, parts, i));
      for (int x = 0; x < total; ++x) {
        const int i = ranges.of(x);
        REQUIRE((ranges.begin(i) <= x && x < ranges.begin(i + 1)));
      }
    }
  }
}

TEST_CASE("Random launches cover every k-step once, within workspace and counters", "[schedule]") {
  check_random_launches(100'000);
}

TEST_CASE("A million random launches cover every k-step once, within workspace and counters", "[.full][schedule]") {
  check_random_launches(1'000'000);
}

TEST_CASE("Every small decomposition covers every k-step once", "[schedule]") {
  ScheduleChecker checker;
  for (int tiles = 1; tiles <= 12; ++tiles) {
    for (int k_steps = 0; k_steps <= 9; ++k_steps) {
      for (int programs = 1; programs <= 30; ++programs) {
        const auto check = [&](Partition partition, int stream_k_tiles, int splits) {
          const Decomposition d{tiles, 1, 1, k_steps, programs, stream_k_tiles, splits};
          const std::string rule = checker.broken_rule(partition, d);
          if (!rule.empty()) FAIL(describe(partition, d) << ": broken: " << rule);
        };
        check(Partition::whole_tiles, 0, 1);
        for (int splits = 1; splits <= std::max(1, k_steps); ++splits) check(Partition::split_k, 0, splits);
        check(Partition::stream_k, 0, 1);
        for (int cut = 1; k_steps > 0 && cut <= tiles; ++cut) check(Partition::stream_k, cut, 1);
      }
    }
  }
  CHECK(checker.works() > 500'000);
}

TEST_CASE("Decompositions near the limits of 32 bits do not overflow", "[schedule]") {
  ScheduleChecker checker;
  const int huge_k = 1 << 27;  // k = 2^31 - 1 in steps of 16
  CHECK(checker.broken_rule(Partition::stream_k, {3, 5, 1, huge_k, 132, 15, 1}) == "");
  CHECK(checker.broken_rule(Partition::stream_k, {3, 5, 1, huge_k, 65'535, 7, 1}) == "");
  CHECK(checker.broken_rule(Partition::stream_k, {362, 181, 2, 16'386, 132, 131'044, 1}) == "");
  CHECK(checker.broken_rule(Partition::split_k, {362, 181, 2, 16'386, 132, 0, 16}) == "");
  CHECK(checker.broken_rule(Partition::whole_tiles, {1 << 20, 2, 4, 255, 1000, 0, 1}) == "");
}

TEST_CASE("A legal launch of any size stays within 32 bits", "[schedule]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  const DeviceInfo device = device_info_for("sm_90a");
  const int largest = 0x7fffffff;
  int legal = 0;
  for (int i = 0; i < 200'000; ++i) {
    Problem problem;
    KernelConfig config;
    draw(random, problem, config);
    problem.m = random.log_between(1, largest);
    problem.n = random.log_between(1, largest);
    problem.k = random.log_between(1, largest);
    if (double(problem.m) * double(problem.n) > 0x1p50) problem.batch = 1;
    problem.lda = problem.ldb = std::int64_t(1) << 31;
    problem.stride_a = problem.stride_b = std::int64_t(1) << 32;
    config.group_m = random.pick(std::array{0, 1, 8, 64});
    problem = normalise(problem);
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
    const auto check_program = [&](const auto& list) {
      Work work;
      bool more = list.first(work);
      for (int i = 0; i < 4 && more; ++i, more = list.next(work)) {
        REQUIRE(work.tile >= 0);
        REQUIRE(work.tile < tiles);
        REQUIRE(work.k_begin >= 0);
        REQUIRE(work.k_begin < work.k_end);
        REQUIRE(work.k_end <= d.k_steps);
        REQUIRE(work.peer >= 0);
        REQUIRE(work.peer < work.peers);
      }
    };
    for (int program : {0, d.programs / 2, d.programs - 1}) {
      switch (partition_of(config.schedule)) {
        case Partition::whole_tiles:
          check_program(WorkList<Partition::whole_tiles>{d, program});
          break;
        case Partition::split_k:
          check_program(WorkList<Partition::split_k>{d, program});
          break;
        case Partition::stream_k:
          check_program(WorkList<Partition::stream_k>{d, program});
          break;
      }
    }
  }
  CHECK(legal > 10'000);
}

TEST_CASE("The raster order is a bijection on every small grid", "[schedule]") {
  std::vector<unsigned char> seen;
  for (int tiles_m = 1; tiles_m <= 24; ++tiles_m) {
    for (int tiles_n = 1; tiles_n <= 24; ++tiles_n) {
      for (int group_m = 0; group_m <= 26; ++group_m) {
        const std::string rule = broken_raster(tiles_m, tiles_n, 1 + group_m % 3, group_m, seen);
        if (!rule.empty()) FAIL(tiles_m << " x " << tiles_n << " in groups of " << group_m << ": broken: " << rule);
      }
    }
  }
}

TEST_CASE("Nine tiles of a 9 x 9 grid load 90 blocks in row order and 54 in groups of three", "[schedule]") {
  // Each row of tiles needs 9 blocks of A, each column 9 blocks of B.
  CHECK(9 * distinct_rows_and_columns(9, 9, 9, 0) == 90);
  CHECK(9 * distinct_rows_and_columns(9, 9, 9, 3) == 54);
}

TEST_CASE("1536 x 1792 x 6016 on 82 and on 84 programs is dealt out as the textbook says", "[schedule]") {
  const Problem problem = normalise({.m = 1536, .n = 1792, .k = 6016});
  const auto shape = [&problem](Schedule schedule, int grid) {
    return launch_shape(problem, {.block_m = 128, .block_n = 128, .block_k = 32, .schedule = schedule, .grid = grid});
  };
  const Decomposition one_tile = shape(Schedule::stream_k_one_tile, 82).decomposition;
  CHECK(tile_count(one_tile) == 168);
  CHECK(one_tile.k_steps == 188);
  CHECK(one_tile.stream_k_tiles == 4);
  const long long total = 1LL * one_tile.stream_k_tiles * one_tile.k_steps;
  CHECK(total == 752);
  CHECK(total / 82 == 9);
  CHECK(total % 82 == 14);
  int longer = 0;
  for (int program = 0; program < 82; ++program) {
    const long long length = range_begin(total, 82, program + 1) - range_begin(total, 82, program);
    CHECK((length == 9 || length == 10));
    longer += length == 10;
  }
  CHECK(longer == 14);

  CHECK(shape(Schedule::stream_k_two_tile, 82).decomposition.stream_k_tiles == 86);
  CHECK(shape(Schedule::stream_k_one_tile, 84).decomposition.stream_k_tiles == 0);
  CHECK(shape(Schedule::stream_k_two_tile, 84).decomposition.stream_k_tiles == 0);
  CHECK(shape(Schedule::stream_k, 82).decomposition.stream_k_tiles == 168);
  CHECK(shape(Schedule::stream_k_two_tile, 0).decomposition.stream_k_tiles == 0);
}

TEST_CASE("Two-tile stream-K gives every program between one and two tiles of k-steps", "[schedule]") {
  for (int programs = 1; programs <= 40; ++programs) {
    for (int tiles = 1; tiles <= 200; ++tiles) {
      const int cut = two_tile_stream_k_tiles(tiles, programs);
      CHECK(cut <= tiles);
      CHECK((tiles - cut) % programs == 0);
      if (tiles % programs != 0 && tiles >= 2 * programs) {
        CHECK(cut >= programs);
        CHECK(cut < 2 * programs);
      }
    }
  }
}
