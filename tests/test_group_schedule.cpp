// The scan of groups' tables that kernels do with a warp (templates/group_schedule.cuh), lane by lane on the host.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "catch.hpp"
#include "group_schedule.cuh"
#include "random.hpp"

using namespace jitgemm::device;
using namespace jitgemm::test;

namespace {

/// A warp whose lanes are the elements of an array.
struct HostWarp {
  struct Ints {
    std::array<int, 32> of{};
  };

  static Ints lanes() {
    Ints all;
    for (int i = 0; i < 32; ++i) all.of[std::size_t(i)] = i;
    return all;
  }
  template <typename F, typename... T>
  static Ints each(const F& f, const T&... x) {
    Ints all;
    for (std::size_t i = 0; i < 32; ++i) all.of[i] = f(x.of[i]...);
    return all;
  }
  static unsigned ballot(const Ints& x) {
    unsigned bits = 0;
    for (std::size_t i = 0; i < 32; ++i) bits |= unsigned(x.of[i] != 0) << i;
    return bits;
  }
  static int get(const Ints& x, int lane) { return x.of.at(std::size_t(lane)); }
  static Ints up(const Ints& x, int by) {
    Ints all = x;
    for (std::size_t i = std::size_t(by); i < 32; ++i) all.of[i] = x.of[i - std::size_t(by)];
    return all;
  }
  static int lowest_bit(unsigned bits) { return __builtin_ctz(bits); }
  static int highest_bit(unsigned bits) { return 31 - __builtin_clz(bits); }
  static int load(const int* from) {
    ++loads;
    return *from;
  }
  static inline long long loads = 0;
};

struct Rows {
  int begin, end;
};

/// What each group has, one after the other: what the scan is to find with a window at a time. `broken`: the first
/// group that goes backwards or out of range, else -1.
std::vector<Rows> rows_of(Grouping grouping, const std::vector<int>& table, int rows, int& broken) {
  std::vector<Rows> all;
  int end = 0;
  broken = -1;
  for (std::size_t g = 0; g < table.size(); ++g) {
    const int in_range = std::clamp(table[g], 0, rows);
    const bool backwards = grouping != Grouping::counts && g > 0 && table[g] < table[g - 1];
    if (broken < 0 && (table[g] != in_range || backwards)) broken = int(g);
    if (grouping == Grouping::counts) {
      all.push_back({0, in_range});
      continue;
    }
    all.push_back({end, std::max(end, in_range)});
    end = all.back().end;
  }
  return all;
}

struct Draw {
  Grouping grouping;
  std::vector<int> table;
  int rows, across, ctas;
};

/// The least multiple of STEP of which so many tiles have all rows; TILE_ROWS where these are no more than STEP.
template <int TILE_ROWS, int STEP>
int height_of(int rows) {
  if (STEP >= TILE_ROWS) return TILE_ROWS;
  const int tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
  int height = STEP;
  while (height < TILE_ROWS && height * tiles < rows) height += STEP;
  return std::min(height, TILE_ROWS);
}

/// Empty, or the first rule that the work of all CTAs breaks.
template <Grouping GROUPING, int TILE_ROWS, int STEP, int GROUP_M>
std::string broken_rule(const Draw& draw) {
  const GroupDecomposition d(int(draw.table.size()), draw.rows, draw.across, GROUP_M);
  int broken = -1;
  const std::vector<Rows> expected = rows_of(GROUPING, draw.table, draw.rows, broken);
  std::vector<int> first(1, 0);  // row of tiles of each group
  for (const Rows& rows : expected) first.push_back(first.back() + (rows.end - rows.begin + TILE_ROWS - 1) / TILE_ROWS);
  if (first.back() > most_tile_rows(GROUPING, d.groups, d.rows, TILE_ROWS))
    return "no more rows of tiles than the bound";
  std::vector<unsigned char> seen(std::size_t(first.back()) * std::size_t(draw.across));
  for (int cta = 0; cta < draw.ctas; ++cta) {
    GroupScan<GROUPING, TILE_ROWS, STEP, GROUP_M, HostWarp> scan(d, draw.table.data());
    GroupTile tile{};
    int group = 0;
    for (int index = cta; scan.find(index, tile); index += draw.ctas) {
      if (tile.group < group || tile.group >= d.groups) return "groups come in order";
      group = tile.group;
      const Rows& rows = expected[std::size_t(group)];
      const int height = height_of<TILE_ROWS, STEP>(rows.end - rows.begin);
      if (tile.row < rows.begin || tile.row >= rows.end) return "a tile has rows of its group";
      if (tile.row_end != (STEP < TILE_ROWS ? std::min(rows.end, tile.row + height) : rows.end))
        return "a tile ends where the next one begins";
      if ((tile.row - rows.begin) % height != 0) return "a group's tiles follow each other from its first row on";
      if (tile.across < 0 || tile.across >= draw.across) return "a tile lies within N";
      const int down = first[std::size_t(group)] + (tile.row - rows.begin) / height;
      if (seen[std::size_t(down) * std::size_t(draw.across) + std::size_t(tile.across)]++) return "a tile comes once";
      // One group's tiles before the next one's.
      const int begin = first[std::size_t(group)] * draw.across, end = first[std::size_t(group) + 1] * draw.across;
      if (index < begin || index >= end) return "one group comes after the other";
    }
    if (scan.broken() != broken) return "each CTA sees which group is the first that is broken";
  }
  if (std::find(seen.begin(), seen.end(), 0) != seen.end()) return "every tile comes";
  return "";
}

template <int TILE_ROWS, int GROUP_M, int STEP = TILE_ROWS>
std::string broken_rule_of(const Draw& draw) {
  return draw.grouping == Grouping::offsets ? broken_rule<Grouping::offsets, TILE_ROWS, STEP, GROUP_M>(draw)
                                            : broken_rule<Grouping::counts, TILE_ROWS, STEP, GROUP_M>(draw);
}

std::string check(const Draw& draw, int kind) {
  switch (kind) {
    case 0:
      return broken_rule_of<64, 8>(draw);
    case 1:
      return broken_rule_of<16, 0>(draw);
    case 2:
      return broken_rule_of<128, 1>(draw);
    case 3:
      return broken_rule_of<8, 3>(draw);
    case 4:
      return broken_rule_of<128, 8, 16>(draw);
    case 5:
      return broken_rule_of<104, 4, 16>(draw);
    default:
      return broken_rule_of<1, 16>(draw);
  }
}

/// Sizes as routings have them: none, one, alike, skewed, all in one group; and what no routing has.
Draw drawn(Random& random) {
  Draw draw;
  draw.grouping = random.between(0, 2) == 0 ? Grouping::counts : Grouping::offsets;
  const int groups = random.between(0, 999) == 0 ? 4096
                     : random.between(0, 3) == 0
                         ? random.pick(std::array{1, 31, 32, 33, 64, 65, 127, 128, 129, 256, 300})
                         : random.log_between(1, 200);
  const int typical = random.log_between(1, 300), shape = random.between(0, 4);
  std::vector<int> sizes(std::size_t(groups), 0);
  for (int& size : sizes)
    size = shape == 0   ? random.between(0, typical)
           : shape == 1 ? (random.between(0, 5) == 0 ? random.between(1, typical) : 0)
           : shape == 2 ? typical
           : shape == 3 ? random.log_between(1, 2 * typical) - 1
                        : 0;
  if (shape == 4) sizes[random.next() % sizes.size()] = typical * 5;
  draw.table = sizes;
  draw.rows = *std::max_element(sizes.begin(), sizes.end()) + random.between(0, 9);
  if (draw.grouping == Grouping::offsets) {
    int end = 0;
    for (int& x : draw.table) x = end += x;
    draw.rows = end + random.between(0, 99);
  }
  if (random.between(0, 2) == 0)
    for (int i = random.between(1, 4); i > 0; --i)
      draw.table[random.next() % draw.table.size()] =
          random.pick(std::array{-1, INT32_MIN, INT32_MAX, draw.rows + 1, 0, draw.rows, draw.rows / 2});
  draw.across = random.log_between(1, 9);
  draw.ctas = random.log_between(1, 140);
  return draw;
}

void every_tile_comes_once(int draws) {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  HostWarp::loads = 0;
  for (int i = 0; i < draws; ++i) {
    const Draw draw = drawn(random);
    const int kind = random.between(0, 6);
    if (const std::string rule = check(draw, kind); !rule.empty()) {
      std::string table;
      for (const int x : draw.table) table += std::to_string(x) + " ";
      FAIL("draw " << i << ", tiles " << kind << ", rows " << draw.rows << ", across " << draw.across << ", CTAs "
                   << draw.ctas << ", " << (draw.grouping == Grouping::offsets ? "ends " : "counts ") << table
                   << "broken: " << rule);
    }
  }
  CHECK(HostWarp::loads > 50LL * draws);
}

}  // namespace

TEST_CASE("Groups along k are found one after the other, and the whole table is read", "[groups]") {
  Random random(test_seed());
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  for (int round = 0; round < 300; ++round) {
    const int k = random.between(0, 500), kind = random.between(0, 2);
    std::vector<int> table(std::size_t(random.between(1, 140)));
    for (int& end : table) end = kind == 0 ? random.between(-9, k + 9) : random.between(0, k);
    if (kind != 0) std::sort(table.begin(), table.end());
    int broken = -1;
    const std::vector<Rows> expected = rows_of(Grouping::along_k, table, k, broken);
    const GroupDecomposition d(int(table.size()), k, 1, 1);
    GroupScan<Grouping::along_k, 1, 1, 0, HostWarp> scan(d, table.data());
    int wrong = 0;
    for (int group = random.between(0, 40); group < d.groups; group += random.between(0, 40)) {
      const GroupRows found = scan.rows_of(group);
      wrong += found.begin != expected[std::size_t(group)].begin || found.end != expected[std::size_t(group)].end;
    }
    scan.read_to_end();
    CAPTURE(round, k, table);
    CHECK(wrong == 0);
    CHECK(scan.broken() == broken);
  }
}

TEST_CASE("Every tile of every group comes once, whatever the table holds", "[groups][schedule]") {
  every_tile_comes_once(20'000);
}

TEST_CASE("Every tile of every group comes once in a million tables", "[.][full][groups][schedule]") {
  every_tile_comes_once(1'000'000);
}

TEST_CASE("Groups' tiles near the limits of 32 bits do not overflow", "[groups][schedule]") {
  // 2^31 - 1 rows, of one group and of as many as a table may say.
  const int most = INT32_MAX;
  const GroupDecomposition d(3, most, 31, 64);
  const std::array ends{0, most, most};
  GroupScan<Grouping::offsets, 64, 64, 64, HostWarp> scan(d, ends.data());
  GroupTile tile{};
  const int rows = most / 64 + 1;
  REQUIRE(scan.find(rows * 31 - 1, tile));
  CHECK(tile.group == 1);
  CHECK(tile.row == (rows - 1) * 64);
  CHECK(tile.row_end == most);
  CHECK(tile.across == 30);
  CHECK_FALSE(scan.find(rows * 31, tile));
  // More tiles side by side than GROUP_M of them can be counted.
  const GroupDecomposition wide(1, 5, 1 << 27, 64);
  const int five = 5;
  GroupScan<Grouping::counts, 1, 1, 64, HostWarp> across(wide, &five);
  REQUIRE(across.find(5 * (1 << 27) - 1, tile));
  CHECK(tile.row == 4);
  CHECK(tile.across == (1 << 27) - 1);
}

TEST_CASE("A group's tiles come as a matrix's of as many rows do", "[groups][schedule]") {
  Random random(7);
  for (int i = 0; i < 300; ++i) {
    const int down = random.between(1, 30), across = random.between(1, 12), rows = down * 16 - random.between(0, 15);
    const Decomposition matrix(down, across, 1, 1, 1, 0, 1, 4);
    const GroupDecomposition d(2, 5000, across, 4);
    const std::array ends{7, 7 + rows};
    GroupScan<Grouping::offsets, 16, 16, 4, HostWarp> scan(d, ends.data());
    GroupTile tile{};
    for (int index = 0; index < down * across; ++index) {
      const TileIndex expected = raster(index, matrix, 4);
      REQUIRE(scan.find(across + index, tile));  // behind the first group's
      REQUIRE(tile.row == 7 + expected.m * 16);
      REQUIRE(tile.across == expected.n);
    }
  }
}
