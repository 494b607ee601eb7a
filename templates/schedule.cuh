// Which k-steps of which tiles of D a program (thread block) computes. Constexpr index arithmetic without a dependency,
// compiled into the kernel, the planner and the tests.
//
// The tiles of all matrices of a batch come in raster order. Tiles [0, stream_k_tiles) are cut along k and shared by
// several programs, the rest is computed whole: program p takes tiles stream_k_tiles + p, + programs, ... A program
// does its part of the cut tiles first. After "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix
// Multiplication on the GPU", Osama et al., PPoPP 2023, arXiv 2301.03598.
#ifndef JITGEMM_SCHEDULE_CUH
#define JITGEMM_SCHEDULE_CUH

namespace jitgemm::device {

/// How tiles are cut along k.
enum class Partition {
  whole_tiles,  // not at all
  split_k,      // every tile into the same number of parts
  stream_k,     // the k-steps of tiles [0, stream_k_tiles) in one row, cut into one range a program
};

constexpr int ceil_div(int x, int y) { return x / y + (x % y != 0); }
constexpr int min_of(int x, int y) { return x < y ? x : y; }

/// What numbers of 0 <= x < 2^31 are divided by, known before the launch. The kernel multiplies and shifts, where a
/// division would be some forty instructions in a row, before the first load and after the last product. Granlund and
/// Montgomery, "Division by Invariant Integers using Multiplication", PLDI 1994.
struct FastDivmod {
  int value;
  unsigned multiplier = 0;  // 2^shift / value, rounded up
  int shift = 31;           // 2^(shift - 31) >= value, so that rounding up adds less than 1 / value to any quotient

  /// 0 divides nothing.
  constexpr explicit FastDivmod(int divisor) : value(divisor) {
    if (divisor <= 0) return;
    while (1ll << (shift - 31) < divisor) ++shift;
    multiplier = unsigned(((1ull << shift) + unsigned(divisor) - 1) / unsigned(divisor));
  }
};
constexpr int operator/(int x, const FastDivmod& by) {
  return int((unsigned long long)unsigned(x) * by.multiplier >> by.shift);
}

/// Cuts [0, total) into `parts` ranges whose lengths differ by one at most, the longer ones first: where range i
/// begins. range_begin(total, parts, parts) = total.
constexpr int range_begin(int total, int parts, int i) {
  const int length = total / parts, longer = total % parts;
  return i * length + min_of(i, longer);
}

/// The ranges of range_begin(), of numbers that are known before the launch.
struct Ranges {
  int longer;  // ranges
  FastDivmod length, longer_length;

  constexpr Ranges(int total, int parts)
      : longer(parts > 0 ? total % parts : 0), length(parts > 0 ? total / parts : 0), longer_length(length.value + 1) {}

  constexpr int begin(int i) const { return i * length.value + min_of(i, longer); }
  /// The range that holds x.
  constexpr int of(int x) const {
    const int in_longer = longer * longer_length.value;
    return x < in_longer ? x / longer_length : longer + (x - in_longer) / length;
  }
};

/// How one launch deals out its work.
struct Decomposition {
  int tiles_m, tiles_n, batch;
  int k_steps;         // of one tile, at least 1
  int programs;        // grid size
  int stream_k_tiles;  // of Partition::stream_k, else 0
  int splits;          // of Partition::split_k, at most k_steps; else 1

  // Of these, what the kernel divides by.
  FastDivmod tiles, matrix_tiles, tile_steps;
  FastDivmod group_tiles, last_group_rows;  // of the raster order
  Ranges split_ranges;                      // of a tile's k-steps
  Ranges program_ranges;                    // of the k-steps of the cut tiles

  constexpr Decomposition() : Decomposition(0, 0, 1, 1, 0, 0, 1) {}
  /// `group_m` is that of raster().
  constexpr Decomposition(int its_tiles_m, int its_tiles_n, int its_batch, int its_k_steps, int its_programs,
                          int its_stream_k_tiles, int its_splits, int group_m = 0)
      : tiles_m(its_tiles_m),
        tiles_n(its_tiles_n),
        batch(its_batch),
        k_steps(its_k_steps),
        programs(its_programs),
        stream_k_tiles(its_stream_k_tiles),
        splits(its_splits),
        tiles(tiles_m * tiles_n * batch),
        matrix_tiles(tiles_m * tiles_n),
        tile_steps(k_steps),
        group_tiles(group_m == 0 ? tiles_n : min_of(group_m, tiles_m) * tiles_n),
        last_group_rows(group_m == 0 ? 0 : tiles_m % group_m),
        split_ranges(k_steps, splits),
        program_ranges(stream_k_tiles * k_steps, programs) {}
};

constexpr int tile_count(const Decomposition& d) { return d.tiles.value; }

/// The k-steps of the tiles of Partition::stream_k that are cut; less than 2^31.
constexpr int stream_k_steps(const Decomposition& d) { return d.stream_k_tiles * d.k_steps; }

/// Tiles that are cut: those of the last, partial wave.
constexpr int one_tile_stream_k_tiles(int tiles, int programs) { return tiles % programs; }

/// Tiles that are cut: those of the last, partial wave and of one full wave, so that every range is between one and two
/// tiles long. With less than two waves as one_tile, with full waves only none.
constexpr int two_tile_stream_k_tiles(int tiles, int programs) {
  const int tail = tiles % programs;
  return tail == 0 || tiles < 2 * programs ? tail : tail + programs;
}

/// Some k-steps of one tile, for one program.
struct Work {
  int tile;
  int k_begin, k_end;  // k-steps
  int peers;           // programs that contribute to this tile
  int peer;            // this one's place among them, in k order
};

/// The work of one program, in order, each from the one before, so that there is no state but the work itself.
template <Partition PARTITION>
struct TileScheduler {
  const Decomposition& d;
  int program;

  /// False when there is none.
  constexpr bool first(Work& work) const {
    if constexpr (PARTITION == Partition::stream_k) {
      if (cut_steps(d.program_ranges.begin(program), work)) return true;
    }
    return from(d.stream_k_tiles + program, work);
  }

  /// False when `work` was the last.
  constexpr bool next(Work& work) const {
    if constexpr (PARTITION == Partition::split_k)
      return from(work.peer * tile_count(d) + work.tile + d.programs, work);
    if constexpr (PARTITION == Partition::stream_k) {
      if (work.tile < d.stream_k_tiles)
        return cut_steps(work.tile * d.k_steps + work.k_end, work) || from(d.stream_k_tiles + program, work);
    }
    return from(work.tile + d.programs, work);
  }

 private:
  /// What of this program's range of k-steps lies in one tile, from `step` on.
  constexpr bool cut_steps(int step, Work& work) const {
    const int stop = d.program_ranges.begin(program + 1);
    if (step >= stop) return false;
    const int tile = step / d.tile_steps, tile_begin = tile * d.k_steps;
    const int first_program = d.program_ranges.of(tile_begin);
    const int last_program = d.program_ranges.of(tile_begin + d.k_steps - 1);
    work = {tile, step - tile_begin, min_of(stop - tile_begin, d.k_steps), last_program - first_program + 1,
            program - first_program};
    return true;
  }

  /// A whole tile, or part `index` of the tiles of split_k: all first parts come before all second ones.
  constexpr bool from(int index, Work& work) const {
    if constexpr (PARTITION == Partition::split_k) {
      const int split = index / d.tiles;
      if (split >= d.splits) return false;
      work = {index - split * tile_count(d), d.split_ranges.begin(split), d.split_ranges.begin(split + 1), d.splits,
              split};
    } else {
      if (index >= tile_count(d)) return false;
      work = {index, 0, d.k_steps, 1, 0};
    }
    return true;
  }
};

/// Slots for partial tiles that a launch needs.
constexpr long long slot_count(Partition partition, const Decomposition& d) {
  if (partition == Partition::split_k && d.splits > 1) return (long long)tile_count(d) * d.splits;
  // A range cuts at most two tiles: the one it begins in and the one it ends in.
  if (partition == Partition::stream_k && d.stream_k_tiles > 0) return 2LL * d.programs;
  return 0;
}

/// The slot of a cut tile's peer.
template <Partition PARTITION>
constexpr long long slot_of(const Decomposition& d, int tile, int peer) {
  if constexpr (PARTITION == Partition::split_k) {
    return (long long)peer * tile_count(d) + tile;
  } else {
    const int tile_begin = tile * d.k_steps, program = d.program_ranges.of(tile_begin) + peer;
    const bool begins_before = d.program_ranges.begin(program) < tile_begin;
    return 2LL * program + begins_before;
  }
}

/// Tiles that have an arrival counter: tile t < this counts at t.
constexpr int cut_tile_count(Partition partition, const Decomposition& d) {
  if (partition == Partition::split_k && d.splits > 1) return tile_count(d);
  return partition == Partition::stream_k ? d.stream_k_tiles : 0;
}

struct TileIndex {
  int m, n, batch;
};

/// Raster order: one matrix of the batch after the other, and of each the rows of tiles in groups of group_m, a group
/// column by column, so that tiles computed at the same time share more of A and B; group_m = 0: row by row. `group_m`
/// is what the decomposition was made with: kernels know it as a constant.
constexpr TileIndex raster(int tile, const Decomposition& d, int group_m) {
  const int batch = d.batch == 1 ? 0 : tile / d.matrix_tiles;
  tile -= batch * d.matrix_tiles.value;
  const int group = tile / d.group_tiles, in_group = tile - group * d.group_tiles.value;
  if (group_m <= 1) return {group, in_group, batch};
  const int first_m = group * group_m;
  const bool whole = d.tiles_m - first_m >= group_m;
  const int n = whole ? in_group / group_m : in_group / d.last_group_rows;
  return {first_m + in_group - n * (whole ? group_m : d.last_group_rows.value), n, batch};
}

}  // namespace jitgemm::device

#endif
