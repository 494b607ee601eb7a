// Pairs of columns of the product that are one of D: a gate and what it lets through. The main loops see the product's
// columns in another order than B has them, 8 of the first kind and 8 of the second in turn: column p is of kind
// p / 8 % 2 and of D's column p / 16 * 8 + p % 8. So both sums of a pair are one thread's, wherever it is multiplied:
// mma and wgmma leave a thread the same two columns of each 8, and with SWAP_AB the same row of each 8. Where D is N /
// 2 wide and that is no multiple of 8, the last group is a part of one; its other columns mean nothing.
#pragma once
#include "fragment.cuh"
#include "ide.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

constexpr bool PAIRS = PAIRING != Pairing::none, ARE_HALVES = PAIRING == Pairing::halves;
// Rows and columns of the kernel's product that are one of D's, with SWAP_AB of D^T's.
constexpr int ROW_FOLD = PARAMETERS.row_fold(), COLUMN_FOLD = PARAMETERS.column_fold();

/// What a tile of the product is of D.
__device__ __forceinline__ WorkTile tile_in_d(const WorkTile& tile) {
  if constexpr (!PAIRS)
    return tile;
  else
    return {tile.row / ROW_FOLD, tile.column / COLUMN_FOLD, tile.row_end / ROW_FOLD, tile.column_end / COLUMN_FOLD,
            tile.batch};
}

/// Which of B's columns is D's `column`, of the first kind or of the second; halves are `half` columns apart.
__device__ __forceinline__ int place_of_pair(int column, int kind, int half) {
  return ARE_HALVES ? kind * half + column : 2 * column + kind;
}

/// Which of a thread's accumulators, of a Fragment, are which elements of D. As a Fragment has them, these are pairs of
/// neighbours in a row; sum() is that of the first one, NEIGHBOUR from it to the second. With PAIRS both are of gates,
/// UP from them to what these let through.
template <typename Sums>
struct PlainElements : Sums {
  static constexpr int HALVES = 2, UP = 0;

  constexpr PlainElements(int warp, int lane) : Sums(warp, lane) {}

  static constexpr int sum(int down, int half, int number) { return Sums::pair(down, half, number); }
};

template <typename Sums>
struct GatedElements;
template <int WARPS, int COLUMNS, bool PAIRED_ROWS, bool PAIRED_COLUMNS>
struct GatedElements<Fragment<WARPS, COLUMNS, PAIRED_ROWS, PAIRED_COLUMNS>> {
  using Sums = Fragment<WARPS, COLUMNS, PAIRED_ROWS, PAIRED_COLUMNS>;
  static constexpr int HALVES = 2 / ROW_FOLD, PAIRS = COLUMNS / 8 / COLUMN_FOLD;
  static constexpr int NEIGHBOUR = 1, UP = ROW_FOLD == 2 ? 2 : 4;

  int first_row, first_column;

  // What multiplies may interleave the halves of 16 columns: then these were loaded one by one in turn, and are apart
  // again (paired_source.cuh).
  constexpr GatedElements(int warp, int lane)
      : first_row(ROW_FOLD == 2 ? warp * 8 + lane / 4 : Sums(warp, lane).first_row), first_column(lane % 4 * 2) {}

  static constexpr int sum(int down, int half, int number) {
    return Sums::block(down, number * COLUMN_FOLD) + half * 2;
  }
  constexpr int row_of(int down, int half) const {
    return first_row + down * (16 / ROW_FOLD * WARPS) + half * (PAIRED_ROWS ? 1 : 8);
  }
  constexpr int column_of(int number) const { return first_column + number * 8; }
};

template <bool, typename Sums>
struct ElementsOf {
  using type = PlainElements<Sums>;
};
template <typename Sums>
struct ElementsOf<true, Sums> {
  using type = GatedElements<Sums>;
};
template <typename Sums>
using Elements = typename ElementsOf<PAIRS, Sums>::type;

/// A thread's sums with the columns as the main loop sees them, as GatedElements has them too: pairs whose halves of 16
/// what multiplies has interleaved are apart again.
template <bool, typename Sums>
struct ProductOf {
  using type = Sums;
};
template <int WARPS, int COLUMNS, bool PAIRED_ROWS>
struct ProductOf<true, Fragment<WARPS, COLUMNS, PAIRED_ROWS, true>> {
  using type = Fragment<WARPS, COLUMNS, PAIRED_ROWS, false>;
};
template <typename Sums>
using ProductFragment = typename ProductOf<PAIRS, Sums>::type;

}  // namespace jitgemm::device
