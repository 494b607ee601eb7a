// Scales of blocks in the portable loop: each thread loads those of its rows and columns from global memory.
#pragma once
#include "arguments.cuh"
#include "block_scales.cuh"
#include "ptx/global.cuh"
#include "ptx/special_registers.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

/// Those of a thread's part of a fragment of DOWN blocks, for one k-block after the other. What lies outside of D has
/// the scale of the nearest inside.
template <typename Fragment, int DOWN>
class BlockScales {
  using Factors = BlockFactors<Fragment, DOWN>;
  using Sums = typename Factors::Sums;
  static constexpr bool OF_EACH_ROW = Factors::OF_EACH_ROW, OF_EACH_COLUMN = Factors::OF_EACH_COLUMN;

  const BlockScalesLayout& layout;
  const float *scales_a, *scales_b;
  int rows[Factors::OF_A];   // that have scales, of all of D
  int first_column, column;  // of the fragment and of the thread's first
  int last_column;
  int half;  // of pairs that are halves
  int k;     // the next k-block
  Factors factors;

  template <Scaling SCALING>
  static __device__ __forceinline__ float at(const float* scales, i64 ld, int index, int k_block) {
    return ptx::ld_global<float>(
        scales + (SCALING == Scaling::block_1x128 ? k_block * ld + index : index / SCALE_EXTENT * ld + k_block));
  }

  /// The column of B that has the ith scale.
  __device__ __forceinline__ int column_of_b(int i) const {
    const int number = i / 2;
    if constexpr (!PAIRS)
      return min_of(OF_EACH_COLUMN ? column + Sums::first_column_of(number) + i % 2 : first_column + i * SCALE_EXTENT,
                    last_column);
    else if constexpr (OF_EACH_COLUMN)
      return place_of_pair(min_of(column + number / 2 * 8 + i % 2, last_column), number % 2, half);
    else if (i < Factors::COLUMN_BLOCKS)
      return place_of_pair(min_of(first_column + i * Factors::EXTENT, last_column), 0, half);
    else
      return place_of_pair(min_of(first_column + (i - Factors::COLUMN_BLOCKS) * Factors::EXTENT, last_column), 1, half);
  }

 public:
  /// Of a fragment that begins at (row, column_of_fragment) of the launch's D, from a k-block on.
  __device__ __forceinline__ BlockScales(const Arguments& arguments, const WorkTile& tile, const Fragment& fragment,
                                         int row, int column_of_fragment, int first_k)
      : layout(block_scales_layout(arguments)),
        scales_a(block_scales_of_a(arguments, tile)),
        scales_b(block_scales_of_b(arguments, tile)),
        k(first_k) {
#pragma unroll
    for (int i = 0; i < Factors::OF_A; ++i)
      rows[i] = layout.first_a +
                min_of(row + (OF_EACH_ROW ? fragment.row_of(i / 2, i % 2) : fragment.row_of(i, 0)), tile.row_end - 1);
    first_column = layout.first_b + column_of_fragment;
    column = first_column + Sums(0, ptx::thread_index() % 32).first_column;
    last_column = layout.first_b + tile.column_end - 1;
    half = half_of_pairs(arguments);
    factors.second_block = SCALE_EXTENT - (half + first_column) % SCALE_EXTENT - (column - first_column);
  }

  __device__ __forceinline__ void load_next() {
    const int k_block = k++ * BLOCK_K / SCALE_EXTENT;
#pragma unroll
    for (int i = 0; i < Factors::OF_A; ++i) factors.a[i] = at<SCALING_A>(scales_a, layout.ld_scale_a, rows[i], k_block);
#pragma unroll
    for (int i = 0; i < Factors::OF_B; ++i)
      factors.b[i] = at<SCALING_B>(scales_b, layout.ld_scale_b, column_of_b(i), k_block);
  }

  template <int COUNT>
  __device__ __forceinline__ void add(const Accumulator (&of_block)[COUNT], Accumulator (&sums)[COUNT]) const {
    factors.template add<0, Sums::PAIRS * 8>(first_column % Factors::EXTENT, of_block, sums);
  }
};

/// Of a kernel without them.
struct NoBlockScales {
  __device__ __forceinline__ void load_next() {}
  template <int COUNT>
  __device__ __forceinline__ void add(const Accumulator (&)[COUNT], Accumulator (&)[COUNT]) const {}
};

}  // namespace jitgemm::device
