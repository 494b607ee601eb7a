// Which tiles of which groups a CTA computes, where memory on the device alone tells how many rows each group has, or
// how much of k: as schedule.cuh for one matrix, but found out by a warp that scans the groups' table, of which each
// lane reads a run. Constexpr index arithmetic without a dependency, compiled into the kernel, the host and the tests.
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

constexpr int clamped(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

/// Of a warp that scans groups: its lanes, and the most groups that a lane reads at once.
constexpr int SCAN_LANES = 32, LONGEST_RUN = 4;

/// What the host knows of a launch's groups.
struct GroupDecomposition {
  int groups;
  int run;                  // of groups that a lane reads at once: few where there are few
  int rows;                 // at most: of all groups together (Grouping::offsets), of each (counts); K (along_k)
  FastDivmod across;        // tiles side by side, along N
  FastDivmod raster_tiles;  // of as many rows of tiles as the raster order takes at once

  constexpr GroupDecomposition() : GroupDecomposition(0, 0, 0, 0) {}
  /// `group_m` is that of raster().
  constexpr GroupDecomposition(int its_groups, int its_rows, int its_across, int group_m)
      : groups(its_groups),
        run(clamped(ceil_div(its_groups, SCAN_LANES), 1, LONGEST_RUN)),
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

/// Finds tiles by their number, each larger than the one before. All lanes of a warp call it together.
///
/// The table is read a window at a time: a run of groups for each lane, and what the lanes count added up by shuffles,
/// log2(32) one after the other. That takes some 300 clocks however long the runs are. The run that has the tile is
/// read again, by all lanes.
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
  // A tile along k takes long, so there is no hurry.
  static constexpr int LONGEST = GROUPING == Grouping::along_k ? 1 : LONGEST_RUN;

  const GroupDecomposition& d_;
  const int* table_;
  // Of the windows that have been read.
  int read_ = 0;       // groups, and in the last window as many as would fill it
  int end_ = 0;        // where the rows of these groups end (offsets, along_k)
  int tile_rows_ = 0;  // of these groups
  int broken_ = -1;    // the first group known to be
  // A lane's, of the last window.
  Ints begins_{};  // where the rows of the groups before its run end (offsets, along_k)
  Ints before_{};  // rows of tiles of all groups before its run
  // The group that was found last, and the rows of tiles up to it and with it.
  int group_ = 0;
  GroupRows rows_{};
  int until_ = 0;

 public:
  constexpr GroupScan(const GroupDecomposition& d, const int* table) : d_(d), table_(table) {}

  /// False if there are fewer tiles; then the whole table has been read.
  constexpr bool find(int tile, GroupTile& found) {
    if (!find_group(tile / d_.across)) return false;
    const int down = tile_rows(rows_);
    const int in_group = tile - (until_ - down) * d_.across.value;
    const TileIndex at = place(in_group, down);
    const int height = height_of(rows_, down), row = rows_.begin + at.m * height;
    found = {group_, row, STEP < TILE_ROWS ? min_of(rows_.end, row + height) : rows_.end, at.n};
    return true;
  }

  /// All there are, once find() has found none.
  constexpr int tiles() const { return tile_rows_ * d_.across.value; }

  /// Of a group along k, which none that comes before it is asked for any more: what it has of k.
  constexpr GroupRows rows_of(int group) {
    find_group(group);
    return rows_;
  }
  /// So that broken() is of the whole table.
  constexpr void read_to_end() {
    while (read_ < d_.groups) read_window();
  }

  /// The first group in what has been read that goes backwards or out of range, -1 if none does.
  constexpr int broken() const { return broken_; }

 private:
  constexpr int run_length() const { return LONGEST == 1 ? 1 : d_.run; }

  /// What the table says of a run's groups, all asked for before any is waited for.
  struct Run {
    int given[LONGEST], groups;
  };
  constexpr Run load_run(int first) const {
    Run run{};
    run.groups = min_of(d_.groups - first, run_length());
    for (int i = 0; i < LONGEST; ++i)
      if (i < run.groups) run.given[i] = Warp::load(table_ + first + i);
    return run;
  }
  /// That of group i of a run behind others that end at `begin`; no rows where there is none.
  static constexpr int given_of(const Run& run, int i, int begin) {
    return i < run.groups ? run.given[i] : GROUPING == Grouping::counts ? 0 : begin;
  }

  /// Of a group behind others that end at `begin`, whatever is given of it.
  constexpr GroupRows rows_from(int begin, int given) const {
    if constexpr (GROUPING == Grouping::counts) return {0, clamped(given, 0, d_.rows)};
    return {begin, clamped(given, begin, d_.rows)};
  }
  constexpr bool is_broken(int begin, int given) const { return given != rows_from(begin, given).end; }

  /// Groups along k have tiles of their own, which are a batch's: here each has one row.
  static constexpr int tile_rows(GroupRows rows) {
    if constexpr (GROUPING == Grouping::along_k) return 1;
    return int((unsigned(rows.end - rows.begin) + (TILE_ROWS - 1)) / TILE_ROWS);
  }

  /// A run's rows of tiles, or if one of its groups is broken -1 less that.
  constexpr int count(int first, int begin) const {
    const Run run = load_run(first);
    int sum = 0;
    bool broken = false;
    for (int i = 0; i < LONGEST; ++i) {
      const int given = given_of(run, i, begin);
      const GroupRows rows = rows_from(begin, given);
      broken |= is_broken(begin, given);
      if (i < run.groups) sum += tile_rows(rows);
      begin = rows.end;
    }
    return broken ? -1 - sum : sum;
  }

  template <typename Combine>
  static constexpr Ints scan(Ints x, const Combine& combine) {
    for (int by = 1; by < SCAN_LANES; by *= 2)
      x = Warp::each([&](int lane, int own, int before) { return lane >= by ? combine(own, before) : own; },
                     Warp::lanes(), x, Warp::up(x, by));
    return x;
  }

  constexpr void read_window() {
    const int window = read_;
    read_ += SCAN_LANES * run_length();
    const Ints firsts = Warp::each([&](int lane) { return window + lane * run_length(); }, Warp::lanes());
    bool begins_are_right = GROUPING == Grouping::counts;
    if constexpr (GROUPING != Grouping::counts)
      begins_ = Warp::each(
          [&](int lane, int first) {
            return lane == 0 ? end_ : clamped(Warp::load(table_ + min_of(first, d_.groups) - 1), end_, d_.rows);
          },
          Warp::lanes(), firsts);
    Ints counts{};
    unsigned broken = 0;
    for (;;) {
      counts = Warp::each([&](int first, int begin) { return count(first, begin); }, firsts, begins_);
      broken = Warp::ballot(Warp::each([](int counted) { return int(counted < 0); }, counts));
      if (broken == 0 || begins_are_right) break;
      begins_ = largest_before(firsts);
      begins_are_right = true;
    }
    if (broken != 0) {
      const int lane = Warp::lowest_bit(broken);
      see_broken(window + lane * run_length(), Warp::get(begins_, lane));
    } else if (GROUPING != Grouping::counts && read_ < d_.groups) {
      end_ = Warp::load(table_ + read_ - 1);
    }
    if constexpr (GROUPING == Grouping::along_k) {
      before_ = firsts;
      tile_rows_ = min_of(read_, d_.groups);
    } else {
      counts = Warp::each([](int counted) { return counted < 0 ? -1 - counted : counted; }, counts);
      const Ints until = scan(counts, [](int x, int y) { return x + y; });
      const int rows_before = tile_rows_;
      before_ = Warp::each([&](int sum, int own) { return rows_before + sum - own; }, until, counts);
      tile_rows_ += Warp::get(until, SCAN_LANES - 1);
    }
  }

  /// Where the rows before each lane's run end, of groups of which some are broken. Moves the end of all.
  constexpr Ints largest_before(const Ints& firsts) {
    const Ints own = Warp::each(
        [&](int first) {
          const Run run = load_run(first);
          int end = end_;
          for (int i = 0; i < LONGEST; ++i) end = rows_from(end, given_of(run, i, end)).end;
          return end;
        },
        firsts);
    const Ints until = scan(own, [](int x, int y) { return x > y ? x : y; });
    const Ints before = Warp::each([&](int lane, int previous) { return lane == 0 ? end_ : previous; }, Warp::lanes(),
                                   Warp::up(until, 1));
    end_ = Warp::get(until, SCAN_LANES - 1);
    return before;
  }

  /// Of a run of which a group is broken: finds the first, if none is known.
  constexpr void see_broken(int group, int begin) {
    if (broken_ >= 0) return;
    for (broken_ = group;; ++broken_) {
      const int given = Warp::load(table_ + broken_);
      if (is_broken(begin, given)) break;
      begin = rows_from(begin, given).end;
    }
  }

  /// The group that has a row of tiles; false if there are fewer.
  constexpr bool find_group(int tile_row) {
    if (tile_row < until_) return true;
    while (tile_row >= tile_rows_) {
      if (read_ >= d_.groups) return false;
      read_window();
    }
    const int lane =
        Warp::highest_bit(Warp::ballot(Warp::each([&](int before) { return int(before <= tile_row); }, before_)));
    const int first = read_ - (SCAN_LANES - lane) * run_length();
    const Run run = load_run(first);
    group_ = first - 1;
    rows_.end = Warp::get(begins_, lane);
    until_ = Warp::get(before_, lane);
    for (int i = 0; i < LONGEST; ++i) {
      if (until_ > tile_row) break;
      rows_ = rows_from(rows_.end, run.given[i]);
      until_ += tile_rows(rows_);
      ++group_;
    }
    return true;
  }

  static constexpr int height_of(GroupRows rows, int down) {
    if constexpr (STEP >= TILE_ROWS) return TILE_ROWS;
    return min_of(TILE_ROWS, ceil_div(ceil_div(rows.end - rows.begin, down), STEP) * STEP);
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
