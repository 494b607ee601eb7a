// Which elements of a tile a thread's accumulators are: for what adds up, finishes and stores them, and for the tests.
// Constexpr index arithmetic without a dependency.
//
// mma and wgmma leave sums as blocks of 16 x 8 (PTX ISA, "Matrix Fragments"), four of each a lane: of rows lane / 4 and
// 8 on, two columns each, 2 (lane % 4) and the next. The multiplication without tensor cores does the same.
#ifndef JITGEMM_FRAGMENT_CUH
#define JITGEMM_FRAGMENT_CUH

namespace jitgemm::device {

/// A thread's part of COLUMNS columns by as many times 16 rows of each of WARPS warps as there are accumulators, its
/// blocks row by row. The warps have 16 rows each in turn. What multiplies may have permuted each 16 rows or columns
/// so that halves are interleaved: PAIRED_ROWS, PAIRED_COLUMNS.
///
/// Its accumulators are pairs of neighbours in a row: PAIRS in the upper 8 rows of each 16, and PAIRS in the lower.
template <int WARPS, int COLUMNS, bool PAIRED_ROWS = false, bool PAIRED_COLUMNS = false>
struct Fragment {
  static_assert(COLUMNS % (PAIRED_COLUMNS ? 16 : 8) == 0);
  static constexpr int BLOCKS_ACROSS = COLUMNS / 8, PAIRS = BLOCKS_ACROSS;
  /// From the first accumulator of a pair, whose column is even, to the second.
  static constexpr int NEIGHBOUR = PAIRED_COLUMNS ? 4 : 1;

  int first_row, first_column;  // of accumulator 0, in the tile

  constexpr Fragment(int warp, int lane)
      : first_row(warp * 16 + lane / 4 * (PAIRED_ROWS ? 2 : 1)), first_column(lane % 4 * (PAIRED_COLUMNS ? 4 : 2)) {}

  /// Accumulators of a thread in `rows` rows.
  static constexpr int count(int rows) { return rows * COLUMNS / (32 * WARPS); }

  /// The first accumulator of a block, which `down` times 16 WARPS rows and `across` times 8 columns are before.
  static constexpr int block(int down, int across) { return (down * BLOCKS_ACROSS + across) * 4; }

  /// The first accumulator of a pair, and where it lies in the tile: `down` blocks further down, in the upper or lower
  /// half of the blocks, the `number`th of the PAIRS there.
  static constexpr int pair(int down, int half, int number) {
    return block(down, PAIRED_COLUMNS ? number / 2 * 2 : number) + half * 2 + (PAIRED_COLUMNS ? number % 2 : 0);
  }
  constexpr int row_of(int down, int half) const {
    return first_row + down * (16 * WARPS) + half * (PAIRED_ROWS ? 1 : 8);
  }
  constexpr int column_of(int number) const { return first_column + first_column_of(number); }
  /// Of the thread whose first column is 0.
  static constexpr int first_column_of(int number) {
    return PAIRED_COLUMNS ? number / 2 * 16 + number % 2 * 2 : number * 8;
  }

  /// Where accumulator i lies in the tile.
  constexpr int row(int i) const { return row_of(i / 4 / BLOCKS_ACROSS, i / 2 % 2); }
  constexpr int column(int i) const {
    const int across = i / 4 % BLOCKS_ACROSS;
    return PAIRED_COLUMNS ? column_of(across / 2 * 2 + i % 2) + across % 2 : column_of(across) + i % 2;
  }
};

}  // namespace jitgemm::device
#endif
