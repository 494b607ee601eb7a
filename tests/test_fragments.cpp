// Every element of a tile belongs to one accumulator of one thread, and pairs are neighbours in a row.
#include <algorithm>
#include <vector>

#include "catch.hpp"
#include "fragment.cuh"

using jitgemm::device::Fragment;

namespace {

template <int WARPS, int COLUMNS, bool PAIRED_ROWS = false, bool PAIRED_COLUMNS = false>
void check(int rows) {
  using Its = Fragment<WARPS, COLUMNS, PAIRED_ROWS, PAIRED_COLUMNS>;
  const int count = Its::count(rows);
  REQUIRE(count * 32 * WARPS == rows * COLUMNS);
  std::vector<int> owners(std::size_t(rows * COLUMNS)), in_pairs = owners;
  const auto at = [](int row, int column) { return std::size_t(row * COLUMNS + column); };
  int wrong = 0;
  for (int thread = 0; thread < 32 * WARPS; ++thread) {
    const Its its(thread / 32, thread % 32);
    for (int i = 0; i < count; ++i) ++owners.at(at(its.row(i), its.column(i)));
    for (int down = 0; down < rows / (16 * WARPS); ++down)
      for (int half = 0; half < 2; ++half)
        for (int number = 0; number < Its::PAIRS; ++number) {
          const int x = Its::pair(down, half, number), y = x + Its::NEIGHBOUR;
          wrong += its.row(x) != its.row_of(down, half) || its.column(x) != its.column_of(number);
          wrong += its.row(y) != its.row(x) || its.column(x) % 2 != 0 || its.column(y) != its.column(x) + 1;
          wrong += x < Its::block(down, 0) || y >= Its::block(down + 1, 0);
          ++in_pairs.at(at(its.row(x), its.column(x)));
          ++in_pairs.at(at(its.row(y), its.column(y)));
        }
  }
  CHECK(wrong == 0);
  CHECK(std::all_of(owners.begin(), owners.end(), [](int x) { return x == 1; }));
  CHECK(owners == in_pairs);
}

}  // namespace

TEST_CASE("A warp's accumulators are each element of its tile once", "[fragments]") {
  check<1, 48>(32);
  check<1, 32, true>(48);
  check<1, 64, false, true>(16);
  check<1, 32, true, true>(32);
}

TEST_CASE("A warpgroup's accumulators are each element of its tile once", "[fragments]") {
  check<4, 8>(64);
  check<4, 24>(128);
  check<4, 256>(64);
}

TEST_CASE("Accumulators lie where the PTX manual has them", "[fragments]") {
  constexpr Fragment<1, 16> mma(0, 5);  // c3 of lane 5 in mma.m16n8's second block: row 5 / 4 + 8, column 2 + 1
  STATIC_REQUIRE((mma.row(7) == 9 && mma.column(7) == 8 + 3));
  constexpr Fragment<4, 16> wgmma(2, 6);
  STATIC_REQUIRE((wgmma.row(0) == 33 && wgmma.column(0) == 4 && wgmma.row(6) == 41 && wgmma.column(6) == 12));
}

TEST_CASE("A column subtile of a fragment is a fragment of the same threads", "[fragments]") {
  using Whole = Fragment<4, 64>;
  using Subtile = Fragment<4, 16>;
  int wrong = 0;
  for (int thread = 0; thread < 128; ++thread)
    for (int down = 0; down < 2; ++down)
      for (int subtile = 0; subtile < 4; ++subtile)
        for (int i = 0; i < Subtile::count(64); ++i) {
          const Whole whole(thread / 32, thread % 32);
          const Subtile part(thread / 32, thread % 32);
          const int its = Whole::block(down, subtile * 2) + i;
          wrong += whole.row(its) != down * 64 + part.row(i) || whole.column(its) != subtile * 16 + part.column(i);
        }
  CHECK(wrong == 0);
}
