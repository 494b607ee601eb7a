// Which k-blocks of which tiles of D a CTA computes; where the CTAs of a cluster compute tiles together, a cluster
// counts as one CTA here. Constexpr index arithmetic without a dependency, compiled into the kernel, the planner and
// the tests.
//
// The tiles of all matrices of a batch come in raster order. Tiles [0, stream_k_tiles) are split along k and shared by
// several CTAs, the rest is computed whole: CTA c takes tiles stream_k_tiles + c, + ctas, ... A CTA does its part of
// the split tiles first. After "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix Multiplication on
// the GPU", Osama et al., PPoPP 2023, arXiv 2301.03598.
#ifndef JITGEMM_SCHEDULE_CUH
#define JITGEMM_SCHEDULE_CUH

namespace jitgemm::device {

/// How tiles are split along k.
enum class Partition {
  one_tile,     // not at all, and a CTA has one tile
  whole_tiles,  // not at all
  split_k,      // every tile into the same number of parts
  stream_k,     // the k-blocks of tiles [0, stream_k_tiles) in one row, split into one range a CTA
};
constexpr bool splits_tiles(Partition partition) {
  return partition == Partition::split_k || partition == Partition::stream_k;
}

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

/// Splits [0, total) into `parts` ranges whose lengths differ by one at most, the longer ones first: where range i
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
  // What a CTA's first tile is found by comes first, see Arguments. FastDivmod: what the kernel divides by.
  int tiles_m, batch;
  int k_blocks;        // of one tile, at least 1
  int stream_k_tiles;  // of Partition::stream_k, else 0
  FastDivmod matrix_tiles;
  FastDivmod group_tiles, last_group_rows;  // of the raster order
  FastDivmod tiles;

  int tiles_n;
  int ctas;    // grid size
  int splits;  // of Partition::split_k, at most k_blocks; else 1
  FastDivmod tile_k_blocks;
  Ranges split_ranges;  // of a tile's k-blocks
  Ranges cta_ranges;    // of the k-blocks of the split tiles

  constexpr Decomposition() : Decomposition(0, 0, 1, 1, 0, 0, 1) {}
  /// `group_m` is that of raster().
  constexpr Decomposition(int its_tiles_m, int its_tiles_n, int its_batch, int its_k_blocks, int its_ctas,
                          int its_stream_k_tiles, int its_splits, int group_m = 0)
      : tiles_m(its_tiles_m),
        batch(its_batch),
        k_blocks(its_k_blocks),
        stream_k_tiles(its_stream_k_tiles),
        matrix_tiles(its_tiles_m * its_tiles_n),
        group_tiles(group_m == 0 ? its_tiles_n : min_of(group_m, its_tiles_m) * its_tiles_n),
        last_group_rows(group_m == 0 ? 0 : its_tiles_m % group_m),
        tiles(its_tiles_m * its_tiles_n * its_batch),
        tiles_n(its_tiles_n),
        ctas(its_ctas),
        splits(its_splits),
        tile_k_blocks(k_blocks),
        split_ranges(k_blocks, splits),
        cta_ranges(stream_k_tiles * k_blocks, ctas) {}
};

constexpr int tile_count(const Decomposition& d) { return d.tiles.value; }

/// The k-blocks of the tiles of Partition::stream_k that are split; less than 2^31.
constexpr int stream_k_blocks(const Decomposition& d) { return d.stream_k_tiles * d.k_blocks; }

/// Tiles that are split: those of the last, partial wave.
constexpr int one_tile_stream_k_tiles(int tiles, int ctas) { return tiles % ctas; }

/// Tiles that are split: those of the last, partial wave and of one full wave, so that every range is between one and
/// two tiles long. With less than two waves as one_tile, with full waves only none.
constexpr int two_tile_stream_k_tiles(int tiles, int ctas) {
  const int tail = tiles % ctas;
  return tail == 0 || tiles < 2 * ctas ? tail : tail + ctas;
}

/// Some k-blocks of one tile, for one CTA.
struct Work {
  int tile;
  int k_begin, k_end;  // k-blocks
  int peers;           // CTAs that contribute to this tile
  int peer;            // this one's place among them, in k order
};

/// The work of one CTA, in order, each from the one before, so that there is no state but the work itself.
template <Partition PARTITION>
struct TileScheduler {
  const Decomposition& d;
  int cta;

  /// False when there is none.
  constexpr bool first(Work& work) const {
    if constexpr (PARTITION == Partition::stream_k) {
      if (part_of_range(d.cta_ranges.begin(cta), work)) return true;
    }
    return from(d.stream_k_tiles + cta, work);
  }

  /// False when `work` was the last.
  constexpr bool next(Work& work) const {
    if constexpr (PARTITION == Partition::one_tile) return false;
    if constexpr (PARTITION == Partition::split_k) return from(work.peer * tile_count(d) + work.tile + d.ctas, work);
    if constexpr (PARTITION == Partition::stream_k) {
      if (work.tile < d.stream_k_tiles)
        return part_of_range(work.tile * d.k_blocks + work.k_end, work) || from(d.stream_k_tiles + cta, work);
    }
    return from(work.tile + d.ctas, work);
  }

 private:
  /// What of this CTA's range of k-blocks lies in one tile, from `begin` on.
  constexpr bool part_of_range(int begin, Work& work) const {
    const int end = d.cta_ranges.begin(cta + 1);
    if (begin >= end) return false;
    const int tile = begin / d.tile_k_blocks, tile_begin = tile * d.k_blocks;
    const int first_cta = d.cta_ranges.of(tile_begin);
    const int last_cta = d.cta_ranges.of(tile_begin + d.k_blocks - 1);
    work = {tile, begin - tile_begin, min_of(end - tile_begin, d.k_blocks), last_cta - first_cta + 1, cta - first_cta};
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
      work = {index, 0, d.k_blocks, 1, 0};
    }
    return true;
  }
};

/// Slots for partial tiles that a launch needs.
constexpr long long slot_count(Partition partition, const Decomposition& d) {
  if (partition == Partition::split_k && d.splits > 1) return (long long)tile_count(d) * d.splits;
  // A range splits at most two tiles: the one it begins in and the one it ends in.
  if (partition == Partition::stream_k && d.stream_k_tiles > 0) return 2LL * d.ctas;
  return 0;
}

/// The slot of a split tile's peer.
template <Partition PARTITION>
constexpr long long slot_of(const Decomposition& d, int tile, int peer) {
  if constexpr (PARTITION == Partition::split_k) {
    return (long long)peer * tile_count(d) + tile;
  } else {
    const int tile_begin = tile * d.k_blocks, cta = d.cta_ranges.of(tile_begin) + peer;
    const bool begins_before = d.cta_ranges.begin(cta) < tile_begin;
    return 2LL * cta + begins_before;
  }
}

/// Tiles that have an arrival counter: tile t < this counts at t.
constexpr int split_tile_count(Partition partition, const Decomposition& d) {
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
