// Scales of blocks of 128 of k. What a main loop adds up of one k-block, which lies within such a block, is multiplied
// by A's scale and B's on its way to the tile's sums. Layouts are those of Scaling in jitgemm/types.hpp.
#pragma once
#include "arguments.cuh"
#include "block_scales_arguments.cuh"
#include "fragment.cuh"
#include "functor.cuh"
#include "ide.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

/// Those of a thread's part of a fragment of DOWN blocks, for one k-block after the other. What lies outside of D has
/// the scale of the nearest inside.
template <typename Fragment, int DOWN>
class BlockScales {
  static constexpr int PAIRS = Fragment::PAIRS, COLUMNS = PAIRS * 8, EXTENT = 128;  // of a block, each way
  static constexpr bool OF_EACH_COLUMN = SCALING_B == Scaling::block_1x128;
  // The blocks of columns that the fragment may lie in.
  static constexpr int SPANNED = EXTENT % COLUMNS == 0 ? 1 : ceil_div(COLUMNS, EXTENT) + 1;

  const BlockScalesArguments& args;
  int rows[2 * DOWN];        // of a thread, of all of D
  int first_column, column;  // of the fragment and of the thread's first
  int last_column;
  int k;  // the next k-block

  struct Values {
    float a[2 * DOWN], b[OF_EACH_COLUMN ? 2 * PAIRS : SPANNED];
  };
  // Those of the next k-block are asked for one ahead, where there are registers for it: ptxas multiplies A's by B's
  // before the k-block's products are waited for, even before they are begun.
  static constexpr int VALUES = sizeof(Values) / sizeof(float), SUMS = DOWN * PAIRS * 4;
  static constexpr bool AHEAD = VALUES <= 3 ? SUMS <= 64 : SUMS + VALUES <= 40;
  Values values, next;

  template <Scaling SCALING>
  static __device__ __forceinline__ float at(const float* scales, i64 ld, int index, int k_block) {
    return ptx::ld_global<float>(
        scales + (SCALING == Scaling::block_1x128 ? k_block * ld + index : index / EXTENT * ld + k_block));
  }

  /// Of pair `number`, its column `next_column`.
  __device__ __forceinline__ float scale_of_column(int number, int next_column) const {
    if constexpr (OF_EACH_COLUMN) return values.b[2 * number + next_column];
    float scale = values.b[0];
    const int block = (first_column % EXTENT + Fragment::first_column_of(number)) / EXTENT;
#pragma unroll
    for (int i = 1; i < SPANNED; ++i)
      if (block == i) scale = values.b[i];
    return scale;
  }

  __device__ __forceinline__ void load(Values& to) {
    const int k_block = min_of(k++ * BLOCK_K / EXTENT, (args.k - 1) / EXTENT);  // one ahead there may be none
#pragma unroll
    for (int i = 0; i < 2 * DOWN; ++i) to.a[i] = at<SCALING_A>(args.scale_a, args.ld_scale_a, rows[i], k_block);
    if constexpr (OF_EACH_COLUMN) {
#pragma unroll
      for (int i = 0; i < 2 * PAIRS; ++i)
        to.b[i] = at<SCALING_B>(args.scale_b, args.ld_scale_b,
                                min_of(column + Fragment::first_column_of(i / 2) + i % 2, last_column), k_block);
    } else {
#pragma unroll
      for (int i = 0; i < SPANNED; ++i)
        to.b[i] = at<SCALING_B>(args.scale_b, args.ld_scale_b, min_of(first_column + i * EXTENT, last_column), k_block);
    }
  }

 public:
  /// Of a fragment that begins at (row, column) of the launch's D, from a k-block on.
  __device__ __forceinline__ BlockScales(const Arguments& arguments, const WorkTile& tile, const Fragment& fragment,
                                         int row, int column_of_fragment, int first_k)
      : args(static_cast<const BlockScalesArguments&>(arguments)), k(first_k) {
#pragma unroll
    for (int i = 0; i < 2 * DOWN; ++i)
      rows[i] = args.first_a + min_of(row + fragment.row_of(i / 2, i % 2), tile.row_end - 1);
    first_column = args.first_b + column_of_fragment;
    column = first_column + fragment.first_column;
    last_column = args.first_b + tile.column_end - 1;
    if constexpr (AHEAD) load(next);
  }

  /// Has those of the next k-block.
  __device__ __forceinline__ void load_next() {
    if constexpr (AHEAD) {
      values = next;
      load(next);
    } else {
      load(values);
    }
  }

  /// sums += a * b * of_block, the product of the scales rounded, and then all else once.
  template <int COUNT>
  __device__ __forceinline__ void add(const Accumulator (&of_block)[COUNT], Accumulator (&sums)[COUNT]) const {
#pragma unroll
    for (int down = 0; down < DOWN; ++down)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int number = 0; number < PAIRS; ++number)
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const int i = Fragment::pair(down, half, number) + j * Fragment::NEIGHBOUR;
            sums[i] = ptx::fma(ptx::mul(values.a[2 * down + half], scale_of_column(number, j)), of_block[i], sums[i]);
          }
  }
};

/// Of a kernel without them.
struct NoBlockScales {
  __device__ __forceinline__ void load_next() {}
  template <int COUNT>
  __device__ __forceinline__ void add(const Accumulator (&)[COUNT], Accumulator (&)[COUNT]) const {}
};

}  // namespace jitgemm::device
