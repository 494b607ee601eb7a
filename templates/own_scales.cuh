// Scales that D gets of its own, one for each row and 128 columns, from the largest of its values there. Their layout
// is Scaling::block_1x128 of jitgemm/types.hpp, their arithmetic that of Problem in jitgemm/problem.hpp.
#pragma once
#include "arguments.cuh"
#include "ide.cuh"
#include "own_scales_arguments.cuh"
#include "ptx/barrier.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "ptx/shared.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

constexpr bool HAS_OWN_SCALES = SCALING_D == Scaling::block_1x128;
constexpr float LARGEST_E4M3 = 448, LEAST_SCALE = 1.17549435e-38f, LARGEST_SCALE = 3.402823466e+38f / LARGEST_E4M3;

/// Of the largest |value| of a block.
__device__ __forceinline__ float scale_of(float largest) {
  const float scale = largest / LARGEST_E4M3;
  return scale < LEAST_SCALE ? LEAST_SCALE : scale > LARGEST_SCALE ? LARGEST_SCALE : scale;
}

/// Of a warpgroup's 64 rows and 128 columns from (row, column) on, whose values x a thread has in the places of
/// `Fragment`: finds the scales, stores them and divides the values by them. Threads of a row meet in `stage`, by the
/// warpgroup's barrier, each warp in the part where its rows of D will lie, as other warps may still multiply from
/// theirs.
template <typename Fragment, typename Value, int COUNT>
__device__ __forceinline__ void scale_rows(const Arguments& args, const WorkTile& tile, u32 stage, int barrier,
                                           u32 thread, const Fragment& fragment, int row, int column,
                                           Value (&x)[COUNT]) {
  constexpr int SHARERS = 4;  // lanes that have parts of the same row, side by side
  const u32 room = stage + thread / 32 * (16 * 128), lane = thread % 32;
  static_assert(Fragment::PAIRS == 16 && Fragment::HALVES == 2, "a row of 128 columns is that of four lanes");
  float largest[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int j = 0; j < Fragment::PAIRS; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float value = x[Fragment::sum(0, half, j) + i], size = value < 0 ? -value : value;
        const bool is_of_d = column + fragment.column_of(j) + i < tile.column_end;
        if (is_of_d && size > largest[half]) largest[half] = size;  // never NaN
      }
  ptx::st_shared_v2(room + lane * 8, __builtin_bit_cast(u32, largest[0]), __builtin_bit_cast(u32, largest[1]));
  ptx::bar_sync(barrier, 128);
  const OwnScalesArguments& own = static_cast<const OwnScalesArguments&>(args);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < SHARERS; ++i) {
      const float other =
          __builtin_bit_cast(float, ptx::ld_shared_u32(room + (lane / SHARERS * SHARERS + i) * 8 + half * 4));
      if (other > largest[half]) largest[half] = other;
    }
    const float scale = scale_of(largest[half]), inverse = 1 / scale;
#pragma unroll
    for (int j = 0; j < Fragment::PAIRS; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        Value& value = x[Fragment::sum(0, half, j) + i];
        value = ptx::mul(value, inverse);
      }
    const int its_row = row + fragment.row_of(0, half);
    if (lane % SHARERS == 0 && its_row < tile.row_end && column < tile.column_end)
      ptx::st_global(reinterpret_cast<u32*>(own.scales_d + column / 128 * own.ld_scales_d + its_row),
                     __builtin_bit_cast(u32, scale));
  }
  ptx::bar_sync(barrier, 128);  // all have read the others'
}

}  // namespace jitgemm::device
