// Scales of A and B in device memory: single values, and vectors of which a thread loads those of its rows and columns.
// As everywhere in the kernel, A's are those of rows: with SWAP_AB those of the problem's B.
#pragma once
#include "arguments.cuh"
#include "block_scales_arguments.cuh"
#include "functor.cuh"
#include "groups.cuh"
#include "ide.cuh"
#include "memory.cuh"
#include "pairs.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

__device__ __forceinline__ float scale_at(const float* scale) { return scale ? ptx::ld_global<float>(scale) : 1.0f; }

/// Of pairs that are halves, how many columns of B one is from the other.
__device__ __forceinline__ int half_of_pairs(const Arguments& args) {
  if constexpr (!PAIRS)
    return 0;
  else if constexpr (GROUPED)
    return (SWAP_AB ? args.m : args.n) / 2;
  else
    return static_cast<const EpilogueScalesArguments&>(args).half;
}

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
      prefetch_side<ROWS, ROW_FOLD == 2>(args, scales_of_a(args, tile), row, tile.row_end, thread, threads);
    if constexpr (SCALING_B == Scaling::vector)
      prefetch_side<COLUMNS, COLUMN_FOLD == 2>(args, scales_of_b(args, tile), column, tile.column_end, thread, threads);
  }

 private:
  template <int COUNT, bool GATED>
  static __device__ __forceinline__ void prefetch_side(const Arguments& args, const float* vector, int first, int end,
                                                       u32 thread, u32 threads) {
    if constexpr (!GATED) {
      prefetch_vector<COUNT>(vector, first, end, thread, threads);
    } else if constexpr (ARE_HALVES) {
      prefetch_vector<COUNT>(vector, first, end, thread, threads);
      prefetch_vector<COUNT>(vector + half_of_pairs(args), first, end, thread, threads);
    } else {
      prefetch_vector<2 * COUNT>(vector, 2 * first, 2 * end, thread, threads);
    }
  }
};

/// Of two neighbours in a row of D; with PAIRS those of both gates, and of what these let through.
struct NeighbourFactors {
  Factors first[2], ups[2];
};

/// By the scales of their row and of each one's column; with PAIRS `ups` are of the columns of the second kind, with
/// SWAP_AB of the row of the second kind.
__device__ __forceinline__ void find_factors(const Scales& scales, ElementCompute a, const ElementCompute (&b)[2],
                                             [[maybe_unused]] const ElementCompute (&ups)[2],
                                             NeighbourFactors& factors) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    factors.first[i] = HAS_VECTOR_SCALES ? scales.factors(a, b[i]) : Factors{scales.alpha, 1};
    if constexpr (PAIRS)
      factors.ups[i] = !HAS_VECTOR_SCALES ? Factors{scales.alpha, 1}
                       : SWAP_AB          ? scales.factors(ups[i], b[i])
                                          : scales.factors(a, ups[i]);
  }
}

/// From the vector's scales that of D's row (column) i; with GATED those of both of B's columns that it is.
template <bool GATED>
__device__ __forceinline__ void load_scale(const float* vector, int i, int half, ElementCompute& scale,
                                           [[maybe_unused]] ElementCompute& up) {
  scale = ElementCompute(ptx::ld_global<float>(vector + (GATED ? place_of_pair(i, 0, half) : i)));
  if constexpr (GATED) up = ElementCompute(ptx::ld_global<float>(vector + place_of_pair(i, 1, half)));
}

/// The vectors' scales of a thread's part of `DOWN` blocks of Elements whose tile begins at (row, column), each loaded
/// once. Those outside of D mean nothing; INTERIOR promises that there are none.
template <typename Elements, int DOWN, bool INTERIOR>
struct FragmentScales {
  static constexpr int ROWS = Elements::HALVES * DOWN, COLUMNS = 2 * Elements::PAIRS;

  const Scales& scales;
  ElementCompute a[ROWS], b[COLUMNS];
  ElementCompute ups[!PAIRS ? 1 : SWAP_AB ? ROWS : COLUMNS];  // of B's columns of the second kind

  /// Of the first `pairs` alone.
  __device__ __forceinline__ FragmentScales(const Arguments& args, const Scales& scales, const WorkTile& tile,
                                            const Elements& elements, int row, int column, int pairs = Elements::PAIRS)
      : scales(scales) {
    if constexpr (HAS_VECTOR_SCALES) {
#pragma unroll
      for (ElementCompute& scale : a) scale = scales.a;
#pragma unroll
      for (ElementCompute& scale : b) scale = scales.b;
#pragma unroll
      for (ElementCompute& scale : ups) scale = SWAP_AB ? scales.a : scales.b;
      const int half = half_of_pairs(args);
      if constexpr (SCALING_A == Scaling::vector)
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
          load_scale<ROW_FOLD == 2>(
              scales_of_a(args, tile),
              tile.row_inside<INTERIOR>(row + elements.row_of(i / Elements::HALVES, i % Elements::HALVES)), half, a[i],
              ups[ROW_FOLD == 2 ? i : 0]);
      if constexpr (SCALING_B == Scaling::vector)
#pragma unroll
        for (int i = 0; i < COLUMNS; ++i)
          if (i / 2 < pairs && (INTERIOR || column + elements.column_of(i / 2) + i % 2 < tile.column_end))
            load_scale<COLUMN_FOLD == 2>(scales_of_b(args, tile), column + elements.column_of(i / 2) + i % 2, half,
                                         b[i], ups[COLUMN_FOLD == 2 ? i : 0]);
    }
  }

  /// Of Elements::sum(down, half, number).
  __device__ __forceinline__ void get(int down, int half, int number, NeighbourFactors& factors) const {
    if constexpr (HAS_VECTOR_SCALES) {
      const int row = Elements::HALVES * down + half;
      const ElementCompute its_b[] = {b[2 * number], b[2 * number + 1]};
      ElementCompute its_ups[2] = {};
      if constexpr (PAIRS)
#pragma unroll
        for (int i = 0; i < 2; ++i) its_ups[i] = ups[SWAP_AB ? row : 2 * number + i];
      find_factors(scales, a[row], its_b, its_ups, factors);
    } else {
      find_factors(scales, 1, {1, 1}, {1, 1}, factors);
    }
  }
};

}  // namespace jitgemm::device
