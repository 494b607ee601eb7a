// Scales of blocks of 128 of k. What a main loop adds up of one k-block, which lies within such a block, is multiplied
// by A's scale and B's on its way to the tile's sums. Layouts are those of Scaling in jitgemm/types.hpp; how the scales
// come to a thread is the loop's own (block_scales_sm80.cuh, block_scales_sm90.cuh).
#pragma once
#include "block_scales_arguments.cuh"
#include "fragment.cuh"
#include "functor.cuh"
#include "ide.cuh"
#include "ptx/math.cuh"

namespace jitgemm::device {

constexpr int SCALE_EXTENT = 128;  // of a block, each way

/// One k-block's scales of a thread's part of a fragment of DOWN blocks. The fragment's first row is a multiple of its
/// blocks' rows, its first column of its columns, so that a block of rows has one scale, if not each row has one.
template <typename Fragment, int DOWN>
struct BlockFactors {
  static constexpr int PAIRS = Fragment::PAIRS, COLUMNS = PAIRS * 8;
  static constexpr bool OF_EACH_ROW = SCALING_A == Scaling::block_1x128;
  static constexpr bool OF_EACH_COLUMN = SCALING_B == Scaling::block_1x128;
  static constexpr int COLUMN_STEP = common_divisor(COLUMNS, SCALE_EXTENT);  // of where fragments begin in a block
  static constexpr int COLUMN_BLOCKS = ceil_div(SCALE_EXTENT - COLUMN_STEP + COLUMNS, SCALE_EXTENT);
  static constexpr int OF_A = OF_EACH_ROW ? 2 * DOWN : DOWN, OF_B = OF_EACH_COLUMN ? 2 * PAIRS : COLUMN_BLOCKS;

  float a[OF_A], b[OF_B];

  /// sums += a * b * of_block, the product of the scales rounded, and then all else once. The fragment begins at
  /// `first_column` of all of D.
  template <int COUNT>
  __device__ __forceinline__ void add(int first_column, const Accumulator (&of_block)[COUNT],
                                      Accumulator (&sums)[COUNT]) const {
#pragma unroll
    for (int down = 0; down < DOWN; ++down)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int number = 0; number < PAIRS; ++number)
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const int i = Fragment::pair(down, half, number) + j * Fragment::NEIGHBOUR;
            const float of_row = a[OF_EACH_ROW ? 2 * down + half : down];
            sums[i] = ptx::fma(ptx::mul(of_row, of_column(first_column, number, j)), of_block[i], sums[i]);
          }
  }

 private:
  /// Of pair `number`, its column `next`.
  __device__ __forceinline__ float of_column(int first_column, int number, int next) const {
    if constexpr (OF_EACH_COLUMN) return b[2 * number + next];
    const int begin = COLUMN_STEP == SCALE_EXTENT ? 0 : first_column % SCALE_EXTENT;
    const int block = (begin + Fragment::first_column_of(number)) / SCALE_EXTENT;
    float scale = b[0];
#pragma unroll
    for (int i = 1; i < OF_B; ++i)
      if (block == i) scale = b[i];
    return scale;
  }
};

}  // namespace jitgemm::device
