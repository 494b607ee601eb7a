#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/problem.hpp"
#include "kernels/launch_shape.hpp"
#include "kernels/legality.hpp"
#include "random.hpp"
#include "schedule_checker.hpp"

using namespace jitgemm;
using namespace jitgemm::device;
using namespace jitgemm::test;

namespace {

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
    const FastDivmod by(divisor);
    for (int x = 0; x <= 2000; ++x)
      if (x / by != x / divisor) FAIL(x << " / " << divisor << " is " << x / by);
  }
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  const int largest = 0x7fffffff;
  for (int i = 0; i < 1'000'000; ++i) {
    const int divisor = int(random.log_between(1, largest)), multiple = largest / divisor * divisor;
    const FastDivmod by(divisor);
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

TEST_CASE("Every small decomposition covers every k-block once", "[schedule]") {
  ScheduleChecker checker;
  for (int tiles = 1; tiles <= 12; ++tiles) {
    for (int k_blocks = 0; k_blocks <= 9; ++k_blocks) {
      for (int ctas = 1; ctas <= 30; ++ctas) {
        const auto check = [&](Partition partition, int stream_k_tiles, int splits) {
          const Decomposition d{tiles, 1, 1, k_blocks, ctas, stream_k_tiles, splits};
          const std::string rule = checker.broken_rule(partition, d);
          if (!rule.empty()) FAIL(describe(partition, d) << ": broken: " << rule);
        };
        if (ctas >= tiles) check(Partition::one_tile, 0, 1);
        check(Partition::whole_tiles, 0, 1);
        for (int splits = 1; splits <= std::max(1, k_blocks); ++splits) check(Partition::split_k, 0, splits);
        check(Partition::stream_k, 0, 1);
        for (int cut = 1; k_blocks > 0 && cut <= tiles; ++cut) check(Partition::stream_k, cut, 1);
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

TEST_CASE("1536 x 1792 x 6016 on 82 and on 84 CTAs is dealt out as the textbook says", "[schedule]") {
  const NormalProblem problem = normalise({.m = 1536, .n = 1792, .k = 6016});
  const auto shape = [&problem](Schedule schedule, int grid) {
    return launch_shape(problem, {.block_m = 128, .block_n = 128, .block_k = 32, .schedule = schedule, .grid = grid});
  };
  const Decomposition one_tile = shape(Schedule::stream_k_one_tile, 82).decomposition;
  CHECK(tile_count(one_tile) == 168);
  CHECK(one_tile.k_blocks == 188);
  CHECK(one_tile.stream_k_tiles == 4);
  const long long total = 1LL * one_tile.stream_k_tiles * one_tile.k_blocks;
  CHECK(total == 752);
  CHECK(total / 82 == 9);
  CHECK(total % 82 == 14);
  int longer = 0;
  for (int cta = 0; cta < 82; ++cta) {
    const long long length = range_begin(total, 82, cta + 1) - range_begin(total, 82, cta);
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

TEST_CASE("Two-tile stream-K gives every CTA between one and two tiles of k-blocks", "[schedule]") {
  for (int ctas = 1; ctas <= 40; ++ctas) {
    for (int tiles = 1; tiles <= 200; ++tiles) {
      const int cut = two_tile_stream_k_tiles(tiles, ctas);
      CHECK(cut <= tiles);
      CHECK((tiles - cut) % ctas == 0);
      if (tiles % ctas != 0 && tiles >= 2 * ctas) {
        CHECK(cut >= ctas);
        CHECK(cut < 2 * ctas);
      }
    }
  }
}
