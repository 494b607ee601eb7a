// Which tiles of which groups a CTA computes, where memory on the device alone tells how many rows each group has, or
// how much of k: as
// schedule.cuh for one matrix, but found out by a warp that scans the groups' table, 32 at a time. Constexpr index
// arithmetic without a dependency, compiled into the kernel, the host and the tests.
//
// The tiles of all groups with rows come one group after the other, those of a group in raster order. CTA c takes tiles
// c, c + ctas, ..., or tile c and then whichever is next (work_queue_sm90.cuh). Whatever the table holds, no group has
// rows outside of what the host knows to be there: ends that go backwards count as the largest before them, ends and
// counts out of range as the nearest in range.
#ifndef JITGEMM_GROUP_SCHEDULE_CUH
#define JITGEMM_GROUP_SCHEDULE_CUH
#include "schedule.cuh"
#include "types.cuh"

namespace jitgemm::device {

/// What the host knows of a launch's groups.
struct GroupDecomposition {
  int groups;
  int rows;                 // at most: of all groups together (Grouping::offsets), of each (counts); K (along_k)
  FastDivmod across;        // tiles side by side, along N
  FastDivmod raster_tiles;  // of as many rows of tiles as the raster order takes at once

  constexpr GroupDecomposition() : GroupDecomposition(0, 0, 0, 0) {}
  /// `group_m` is that of raster().
  constexpr GroupDecomposition(int its_groups, int its_rows, int its_across, int group_m)
      : groups(its_groups),
        rows(its_rows),
        across(its_across),
        // More than there are tiles need not be told from each other.
        raster_tiles(group_m <= 1                         ? its_across
                     : its_across <= 0x7fffffff / group_m ? its_across * group_m
                                                          : 0x7fffffff) {}
};

/// The most rows of tiles that there can be: where offsets deal out all rows, each group ends within a tile of its own.
constexpr long long most_tile_rows(Grouping grouping, long long groups, long long rows, int tile_rows) {
  if (grouping == Grouping::counts) return groups * ((rows + tile_rows - 1) / tile_rows);
  const long long with_rows = groups < rows ? groups : rows;
  return with_rows + (rows - with_rows) / tile_rows;
}

/// A tile of a group's rows.
struct GroupTile {
  int group;
  int row, row_end;  // its first row, and where its or the group's end; of all groups' (offsets), of its own (counts)
  int across;        // its place among those side by side
};

/// Rows of one group, half-open.
struct GroupRows {
  int begin, end;
};
constexpr int tile_rows_of(GroupRows rows, int tile_rows) { return ceil_div(rows.end - rows.begin, tile_rows); }

constexpr int clamped(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

/// Finds tiles by their number, each larger than the one before. All lanes of a warp call it together.
///
/// `Warp` has a value for each lane, `Ints`, and what a warp does with them: each(f, x, y...) is f(x, y...) in each
/// lane, ballot() the bits of those that are not 0, get() that of one lane to all, up() that of so many lanes before,
/// of which the first lanes have none.
///
/// Tiles have TILE_ROWS rows, or where that is more than STEP as few as share a group's rows evenly, in multiples of
/// STEP: as many tiles, of which none is much narrower than the others.
template <Grouping GROUPING, int TILE_ROWS, int STEP, int GROUP_M, typename Warp>
class GroupScan {
  using Ints = typename Warp::Ints;
  static constexpr int LANES = 32;

  const GroupDecomposition& d_;
  const int* table_;
  int window_ = -LANES;     // the first lane's group; at first none are read
  int end_ = 0;             // of the groups before the window, where the last one's rows end (offsets)
  int tile_rows_ = 0;       // of the groups before the window
  Ints begins_{}, ends_{};  // a lane's group's rows
  Ints until_{};            // rows of tiles up to that group and with it
  int broken_ = -1;         // the first group known to be

  template <typename Combine>
  constexpr Ints scan(Ints x, const Combine& combine) const {
    for (int by = 1; by < LANES; by *= 2)
      x = Warp::each([&](int lane, int own, int before) { return lane >= by ? combine(own, before) : own; },
                     Warp::lanes(), x, Warp::up(x, by));
    return x;
  }

  constexpr void read_ends(const Ints& given) {
    const Ints before = Warp::each([&](int lane, int previous) { return lane == 0 ? end_ : previous; }, Warp::lanes(),
                                   Warp::up(given, 1));
    const int window = window_;
    const unsigned broken = Warp::ballot(Warp::each(
        [&](int lane, int begin, int end) { return (window + lane < d_.groups) & ((end < begin) | (end > d_.rows)); },
        Warp::lanes(), before, given));
    if (broken == 0) {
      begins_ = before;
      ends_ = Warp::each([](int begin, int end) { return end < begin ? begin : end; }, before, given);
      return;
    }
    see_broken(broken);
    const Ints in_range = Warp::each([&](int end) { return clamped(end, end_, d_.rows); }, given);
    ends_ = scan(in_range, [](int x, int y) { return x > y ? x : y; });
    begins_ = Warp::each([&](int lane, int previous) { return lane == 0 ? end_ : previous; }, Warp::lanes(),
                         Warp::up(ends_, 1));
  }

  constexpr void see_broken(unsigned lanes) {
    if (broken_ < 0) broken_ = window_ + Warp::lowest_bit(lanes);
  }

  constexpr void read_counts(const Ints& given) {
    const unsigned broken =
        Warp::ballot(Warp::each([&](int count) { return int(count < 0 || count > d_.rows); }, given));
    if (broken != 0) see_broken(broken);
    ends_ = Warp::each([&](int count) { return clamped(count, 0, d_.rows); }, given);
  }

  constexpr void read_window() {
    const int groups = d_.groups - window_;
    const int* const table = table_ + window_;
    // Beyond the last group there are no rows: 0 is an end before all others, and no count.
    const Ints given =
        Warp::each([&](int lane) { return lane < groups ? Warp::load(table + lane) : 0; }, Warp::lanes());
    if constexpr (GROUPING == Grouping::counts)
      read_counts(given);
    else
      read_ends(given);
    if constexpr (GROUPING == Grouping::along_k) return;  // whose tiles are the same for all groups
    const Ints own =
        Warp::each([](int begin, int end) { return tile_rows_of({begin, end}, TILE_ROWS); }, begins_, ends_);
    const int before = tile_rows_;
    until_ = Warp::each([&](int sum) { return before + sum; }, scan(own, [](int x, int y) { return x + y; }));
  }

 public:
  constexpr GroupScan(const GroupDecomposition& d, const int* table) : d_(d), table_(table) {}

  /// False if there are fewer tiles; then the whole table has been read.
  constexpr bool find(int tile, GroupTile& found) {
    const int tile_row = tile / d_.across;
    while (tile_row >= Warp::get(until_, LANES - 1)) {
      if (d_.groups - window_ <= LANES) return false;
      tile_rows_ = Warp::get(until_, LANES - 1);
      end_ = Warp::get(ends_, LANES - 1);
      window_ += LANES;
      read_window();
    }
    const int lane =
        Warp::lowest_bit(Warp::ballot(Warp::each([&](int until) { return int(until > tile_row); }, until_)));
    const GroupRows rows{Warp::get(begins_, lane), Warp::get(ends_, lane)};
    const int down = tile_rows_of(rows, TILE_ROWS);
    const int in_group = tile - (Warp::get(until_, lane) - down) * d_.across.value;
    const TileIndex at = place(in_group, down);
    const int height = height_of(rows, down), row = rows.begin + at.m * height;
    found = {window_ + lane, row, STEP < TILE_ROWS ? min_of(rows.end, row + height) : rows.end, at.n};
    return true;
  }

  /// All there are, once find() has found none.
  constexpr int tiles() const { return Warp::get(until_, LANES - 1) * d_.across.value; }

  /// Of a group, which none that comes before it is asked for any more: its rows, or what it has of k.
  constexpr GroupRows rows_of(int group) {
    while (group >= window_ + LANES) read_next();
    return {Warp::get(begins_, group - window_), Warp::get(ends_, group - window_)};
  }
  /// So that broken() is of the whole table.
  constexpr void read_to_end() {
    while (d_.groups - window_ > LANES) read_next();
  }

  /// The first group in what has been read that goes backwards or out of range, -1 if none does.
  constexpr int broken() const { return broken_; }

 private:
  static constexpr int height_of(GroupRows rows, int down) {
    if constexpr (STEP >= TILE_ROWS) return TILE_ROWS;
    return min_of(TILE_ROWS, ceil_div(ceil_div(rows.end - rows.begin, down), STEP) * STEP);
  }

  constexpr void read_next() {
    end_ = Warp::get(ends_, LANES - 1);
    window_ += LANES;
    read_window();
  }

  /// As raster() has it, of a group with so many rows of tiles.
  constexpr TileIndex place(int in_group, int down) const {
    const int first = in_group / d_.raster_tiles, in_first = in_group - first * d_.raster_tiles.value;
    if constexpr (GROUP_M <= 1) {
      return {first, in_first, 0};
    } else {
      const int first_m = first * GROUP_M, rows = min_of(down - first_m, GROUP_M);
      const int n = rows == GROUP_M ? in_first / GROUP_M : in_first / rows;
      return {first_m + in_first - n * rows, n, 0};
    }
  }
};

}  // namespace jitgemm::device

#endif
