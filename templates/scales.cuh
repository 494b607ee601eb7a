// Scales of A and B in device memory: single values, and vectors of which a thread loads those of its rows and columns.
// As everywhere in the kernel, A's are those of rows: with SWAP_AB those of the problem's B.
#pragma once
#include "arguments.cuh"
#include "functor.cuh"
#include "groups.cuh"
#include "ide.cuh"
#include "memory.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

__device__ __forceinline__ float scale_at(const float* scale) { return scale ? ptx::ld_global<float>(scale) : 1.0f; }

/// What all of D is multiplied by. A kernel makes it once, while the first k-blocks are on their way: behind a tile's
/// last k-block two loads and a chain of five f64 instructions would show (on an H200 up to 0.4 us a tile).
struct Scales {
  ElementCompute alpha, d = 1;  // alpha with A's and B's, where neither is a vector
  ElementCompute a = 1, b = 1;  // else the one that is not

  __device__ __forceinline__ explicit Scales(const Arguments& args) : alpha(value(args.scalars.alpha)) {
    if constexpr (HAS_VECTOR_SCALES) {
      if constexpr (SCALING_A == Scaling::value) a = scale_at(args.scale_a);
      if constexpr (SCALING_B == Scaling::value) b = scale_at(args.scale_b);
    } else if constexpr (HAS_SCALES && !HAS_BLOCK_SCALES) {
      // In double precision no product of two rounds, none of three overflows, and so their order does not matter.
      const double scale_a = scale_at(args.scale_a), scale_b = scale_at(args.scale_b);
      alpha = float(ptx::mul(ptx::mul(scale_a, scale_b), double(alpha)));
    }
    if constexpr (HAS_SCALES && sizeof(ElementD) == 1) d = scale_at(args.scale_d);
  }

  /// With vectors, of an element with these scales of A and B.
  __device__ __forceinline__ Factors factors(ElementCompute of_a, ElementCompute of_b) const {
    return SWAP_AB ? Factors{ptx::mul(alpha, of_b), of_a} : Factors{ptx::mul(alpha, of_a), of_b};
  }

  /// Brings the vectors' scales of ROWS x COLUMNS elements into the L1, by `threads` threads; what lies outside is
  /// replaced by the nearest inside.
  template <int ROWS, int COLUMNS>
  static __device__ __forceinline__ void prefetch(const Arguments& args, const WorkTile& tile, int row, int column,
                                                  u32 thread, u32 threads) {
    if constexpr (SCALING_A == Scaling::vector)
      prefetch_vector<ROWS>(scales_of_a(args, tile), row, tile.row_end, thread, threads);
    if constexpr (SCALING_B == Scaling::vector)
      prefetch_vector<COLUMNS>(scales_of_b(args, tile), column, tile.column_end, thread, threads);
  }
};

/// The vectors' scales of a thread's part of `DOWN` blocks of a fragment whose tile begins at (row, column), each
/// loaded once. Those outside of D mean nothing, and are not read; INTERIOR promises that there are none.
template <typename Fragment, int DOWN, bool INTERIOR>
struct FragmentScales {
  const Scales& scales;
  ElementCompute a[2 * DOWN], b[2 * Fragment::PAIRS];

  /// Of the first `pairs` alone.
  __device__ __forceinline__ FragmentScales(const Arguments& args, const Scales& scales, const WorkTile& tile,
                                            const Fragment& fragment, int row, int column, int pairs = Fragment::PAIRS)
      : scales(scales) {
    if constexpr (HAS_VECTOR_SCALES) {
#pragma unroll
      for (ElementCompute& scale : a) scale = scales.a;
#pragma unroll
      for (ElementCompute& scale : b) scale = scales.b;
      if constexpr (SCALING_A == Scaling::vector)
#pragma unroll
        for (int i = 0; i < 2 * DOWN; ++i)
          load(scales_of_a(args, tile), row + fragment.row_of(i / 2, i % 2), tile.row_end, a[i]);
      if constexpr (SCALING_B == Scaling::vector)
#pragma unroll
        for (int i = 0; i < 2 * Fragment::PAIRS; ++i)
          if (i / 2 < pairs)
            load(scales_of_b(args, tile), column + fragment.column_of(i / 2) + i % 2, tile.column_end, b[i]);
    }
  }

  /// Of Fragment::pair(down, half, number).
  __device__ __forceinline__ void get(int down, int half, int number, Factors (&factors)[2]) const {
    if constexpr (HAS_VECTOR_SCALES) {
      factors[0] = scales.factors(a[2 * down + half], b[2 * number]);
      factors[1] = scales.factors(a[2 * down + half], b[2 * number + 1]);
    } else {
      factors[0] = factors[1] = {scales.alpha, 1};
    }
  }

 private:
  static __device__ __forceinline__ void load(const float* vector, int i, int end, ElementCompute& scale) {
    if (INTERIOR || i < end) scale = ElementCompute(ptx::ld_global<float>(vector + i));
  }
};

}  // namespace jitgemm::device
