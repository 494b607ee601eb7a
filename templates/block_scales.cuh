// Scales of blocks of 128 of k. What a main loop adds up of one k-block, which lies within such a block, is multiplied
// by A's scale and B's on its way to the tile's sums. Layouts are those of Scaling in jitgemm/types.hpp; how the scales
// come to a thread is the loop's own (block_scales_sm80.cuh, block_scales_sm90.cuh).
#pragma once
#include "block_scales_arguments.cuh"
#include "fragment.cuh"
#include "functor.cuh"
#include "groups.cuh"
#include "ide.cuh"
#include "pairs.cuh"
#include "ptx/math.cuh"
#include "ptx/special_registers.cuh"
#include "scales.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

constexpr int SCALE_EXTENT = 128;  // of a block, each way
// Of D's columns (with SWAP_AB rows) that have both of a pair's, a block has as many, and a half begins with a block.
constexpr int PAIRED_EXTENT = ARE_HALVES ? SCALE_EXTENT : SCALE_EXTENT / 2;
constexpr bool UPS_BEGIN_BLOCKS = UP_STEP == SCALE_EXTENT;

__device__ __forceinline__ const BlockScalesLayout& block_scales_layout(const Arguments& args) {
  if constexpr (GROUPED)
    return static_cast<const GroupBlockScalesArguments&>(args);
  else if constexpr (HAS_CUSTOM_EPILOGUE)
    return static_cast<const EpilogueScalesArguments&>(args);
  else
    return static_cast<const BlockScalesArguments&>(args);
}
__device__ __forceinline__ const auto& batch_of_block_scales(const Arguments& args) {
  if constexpr (HAS_CUSTOM_EPILOGUE)
    return static_cast<const EpilogueScalesArguments&>(args);
  else
    return static_cast<const BatchBlockScalesArguments&>(args);
}

/// Those of a tile's matrix or group.
__device__ __forceinline__ const float* block_scales_of_a(const Arguments& args, const WorkTile& tile) {
  if constexpr (BATCHED && !GROUPED)
    return args.scale_a + tile.batch * batch_of_block_scales(args).stride_scale_a;
  else
    return scales_of_a(args, tile);
}
__device__ __forceinline__ const float* block_scales_of_b(const Arguments& args, const WorkTile& tile) {
  if constexpr (BATCHED && !GROUPED)
    return args.scale_b + tile.batch * batch_of_block_scales(args).stride_scale_b;
  else
    return scales_of_b(args, tile);
}

/// One k-block's scales of a thread's part of a fragment of DOWN blocks. The fragment's first row is a multiple of its
/// blocks' rows, its first column of its columns, so that a block of rows has one scale, if not each row has one. Where
/// columns are pairs, those of one kind are as many as D has; where rows are, a block's halves are of either kind.
template <typename Fragment, int DOWN>
struct BlockFactors {
  using Sums = ProductFragment<Fragment>;
  static constexpr int PAIRS = Sums::PAIRS, COLUMNS = PAIRS * 8 / COLUMN_FOLD;
  static constexpr bool OF_EACH_ROW = SCALING_A == Scaling::block_1x128;
  static constexpr bool OF_EACH_COLUMN = SCALING_B == Scaling::block_1x128;
  static constexpr int EXTENT = COLUMN_FOLD == 2 ? PAIRED_EXTENT : SCALE_EXTENT;
  static constexpr int COLUMN_STEP = common_divisor(COLUMNS, EXTENT);  // of where fragments begin in a block
  static constexpr int COLUMN_BLOCKS = ceil_div(EXTENT - COLUMN_STEP + COLUMNS, EXTENT);
  // Of columns of the second kind, where these lie elsewhere: behind those of the first.
  static constexpr int UP_BLOCKS = COLUMN_FOLD == 1 || !ARE_HALVES ? 0 : UPS_BEGIN_BLOCKS ? COLUMN_BLOCKS : 2;
  static constexpr int OF_A = OF_EACH_ROW || ROW_FOLD == 2 ? 2 * DOWN : DOWN;
  static constexpr int OF_B = OF_EACH_COLUMN ? 2 * PAIRS : COLUMN_BLOCKS + UP_BLOCKS;

  // Of the first WIDTH columns.
  template <int WIDTH>
  static constexpr int pairs() {
    return min_of(PAIRS, WIDTH / 8);
  }
  template <int WIDTH>
  static constexpr int of_b() {
    return OF_EACH_COLUMN ? 2 * pairs<WIDTH>() : OF_B;
  }

  float a[OF_A], b[OF_B];
  int second_block;  // without UPS_BEGIN_BLOCKS: from the thread's first column on, where the ups' second block begins

  __device__ __forceinline__ void copy_columns(const BlockFactors& other) {
#pragma unroll
    for (int i = 0; i < OF_B; ++i) b[i] = other.b[i];
    second_block = other.second_block;
  }

  /// sums += a * b * of_block, the product of the scales rounded, and then all else once, of the WIDTH columns from
  /// FIRST on. The fragment begins at `begin` of its first block.
  template <int FIRST, int WIDTH, int COUNT>
  __device__ __forceinline__ void add(int begin, const Accumulator (&of_block)[COUNT],
                                      Accumulator (&sums)[COUNT]) const {
#pragma unroll
    for (int down = 0; down < DOWN; ++down)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int number = FIRST / 8; number < pairs<FIRST + WIDTH>(); ++number)
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const int i = Sums::pair(down, half, number) + j * Sums::NEIGHBOUR;
            const float of_row = a[OF_A > DOWN ? 2 * down + half : down];
            sums[i] = ptx::fma(ptx::mul(of_row, of_column(begin, number, j)), of_block[i], sums[i]);
            ptx::compute_now(sums[i]);
          }
  }

 private:
  /// Of a column of D, in blocks whose scales are b[FIRST] and those behind. The columns of a COLUMN_STEP have one
  /// block, which is one of two: so a k-block takes a choice for each step, not for each column.
  template <int FIRST>
  __device__ __forceinline__ float of_step(int begin, int column) const {
    const int step = column / COLUMN_STEP * COLUMN_STEP, block = step / EXTENT, next = (block + 1) * EXTENT - step;
    return next <= EXTENT - COLUMN_STEP && begin >= next ? b[FIRST + block + 1] : b[FIRST + block];
  }

  /// Of the jth column of a pair of neighbours.
  __device__ __forceinline__ float of_column(int begin, int number, int j) const {
    if constexpr (OF_EACH_COLUMN) {
      return b[2 * number + j];
    } else if constexpr (UP_BLOCKS == 0) {
      return of_step<0>(begin, Sums::first_column_of(number) / COLUMN_FOLD / 8 * 8);
    } else {
      const int column = number / 2 * 8;
      if (number % 2 == 0) return of_step<0>(begin, column);
      if constexpr (UPS_BEGIN_BLOCKS)
        return of_step<COLUMN_BLOCKS>(begin, column);
      else
        return column + j < second_block ? b[OF_B - 2] : b[OF_B - 1];
    }
  }
};

}  // namespace jitgemm::device
