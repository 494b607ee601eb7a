// What a warp of the portable main loop does with a k-block of double precision: MMA_STEPS of mma.sync, 4 k each, its
// operands' fragments by ordinary loads, as ldmatrix moves no 8-byte elements.
#pragma once
#include "fragment.cuh"
#include "ide.cuh"
#include "operand_tile.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared.cuh"
#include "ptx/special_registers.cuh"

namespace jitgemm::device {

constexpr int MMA_STEPS = BLOCK_K / 4;
using WarpFragment = Fragment<1, WARP_N>;

/// A thread's elements of an MMA step: k = lane % 4 of rows (columns) lane / 4, + 8, ... of the warp's.
template <int BLOCK, int EXTENT, bool K_MAJOR>
struct FragmentReader {
  using Tile = OperandTile<double, BLOCK, K_MAJOR>;
  static constexpr int COUNT = EXTENT / 8;
  u32 base;

  explicit __device__ __forceinline__ FragmentReader(u32 origin) {
    const u32 lane = ptx::thread_index() % 32, mn = lane / 4, k = lane % 4;
    base = K_MAJOR ? Tile::offset(origin + mn, k / 2) + k % 2 * 8 : Tile::offset(k, origin / 2 + mn / 2) + mn % 2 * 8;
  }

  /// The swizzle is an exclusive or and repeats every 4 rows.
  __device__ __forceinline__ void load(u32 tile, int step, double (&x)[COUNT]) const {
    const u32 first = tile + base;
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      ptx::ld_shared(
          K_MAJOR ? (first ^ (step * 32)) + i * 8 * Tile::ROW_BYTES : (first ^ (i * 64)) + step * 4 * Tile::ROW_BYTES,
          x[i]);
  }
};

struct Multiplier {
  FragmentReader<BLOCK_M, WARP_M, A_K_MAJOR> reader_a;
  FragmentReader<BLOCK_N, WARP_N, B_K_MAJOR> reader_b;
  double a[2][WARP_M / 8], b[2][WARP_N / 8];

  __device__ __forceinline__ Multiplier(u32 warp_m, u32 warp_n)
      : reader_a(warp_m * WARP_M), reader_b(warp_n * WARP_N) {}

  __device__ __forceinline__ void load(u32 smem, int step) {
    reader_a.load(smem, step, a[step % 2]);
    reader_b.load(smem + TileA::BYTES, step, b[step % 2]);
  }

  __device__ __forceinline__ void multiply(int step, double (&accumulators)[ACCUMULATORS]) {
#pragma unroll
    for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
      for (int j = 0; j < WARP_N / 8; ++j)
        ptx::mma_m16n8k4(reinterpret_cast<double(&)[4]>(accumulators[WarpFragment::block(i, j)]), a[step % 2][2 * i],
                         a[step % 2][2 * i + 1], b[step % 2][j]);
  }
};

}  // namespace jitgemm::device
