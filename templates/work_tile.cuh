// A tile of D with its limits, as main loops are given it. They, the epilogue and the store know D's extents by nothing
// else, so that another source of tiles (groups.cuh) is another way to make one; but TMA stores are clipped by their
// map of D, so for tiles that end where D ends.
#pragma once
#include "arguments.cuh"
#include "ide.cuh"

namespace jitgemm::device {

struct WorkTile {
  int row, column;          // its first element in D
  int row_end, column_end;  // where D ends
  int batch;                // the matrix

  /// Whether `rows` x `columns` from (at_row, at_column) on are inside of D.
  __device__ __forceinline__ bool contains(int at_row, int at_column, int rows, int columns) const {
    return row_end - at_row >= rows && column_end - at_column >= columns;
  }
  /// The nearest row inside: a vector along rows is loaded there, without a branch, for rows that D does not have.
  /// INTERIOR promises that it has all.
  template <bool INTERIOR>
  __device__ __forceinline__ int row_inside(int at) const {
    return INTERIOR ? at : min_of(at, row_end - 1);
  }
};

/// Of a kernel without clusters, a block's place in its own.
struct NoCluster {
  static constexpr int blocks_m = 1, blocks_n = 1, m = 0, n = 0;
};

/// Tile (m, n) of matrix `batch`.
__device__ __forceinline__ WorkTile work_tile(const Arguments& args, int m, int n, int batch) {
  return {m * BLOCK_M, n * BLOCK_N, args.m, args.n, batch};
}

}  // namespace jitgemm::device
