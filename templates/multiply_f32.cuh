// What a warp of the portable main loop does with a k-block of full single precision: fused multiply-adds in MMA_STEPS
// of 4 k. Accumulators lie as if mma had left them.
#pragma once
#include "fragment.cuh"
#include "ide.cuh"
#include "operand_tile.cuh"
#include "ptx/math.cuh"
#include "ptx/shared.cuh"
#include "ptx/special_registers.cuh"

namespace jitgemm::device {

constexpr int MMA_STEPS = BLOCK_K / 4;
using WarpFragment = Fragment<1, WARP_N>;

/// A thread's WIDTH neighbouring rows (columns) of each 8 of the warp's, 4 k of each.
template <int BLOCK, int EXTENT, bool K_MAJOR, int WIDTH>
struct FragmentReader {
  using Tile = OperandTile<float, BLOCK, K_MAJOR>;
  static constexpr int COUNT = EXTENT / 8;
  u32 base;  // of its first row (column), k = 0

  __device__ __forceinline__ FragmentReader(u32 origin, u32 mn) {
    base = K_MAJOR ? Tile::offset(origin + mn, 0) : Tile::offset(0, (origin + mn) / 4) + mn % 4 * 4;
  }

  /// The swizzle is an exclusive or. K-major it repeats every 8 rows, and WIDTH = 2 rows differ in its lowest bit; else
  /// every 4 rows, row k by chunks of 2k.
  __device__ __forceinline__ void load(u32 tile, int step, float (&x)[COUNT][WIDTH][4]) const {
    const u32 first = tile + base;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      if constexpr (K_MAJOR) {
        constexpr u32 NEIGHBOUR = Tile::offset(1, 0) - Tile::ROW_BYTES;  // what the swizzle adds to an odd row
#pragma unroll
        for (int w = 0; w < WIDTH; ++w)
          ptx::ld_shared_v4((first ^ (step * 16) ^ (w * NEIGHBOUR)) + (i * 8 + w) * Tile::ROW_BYTES, x[i][w]);
      } else {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const u32 from = (first ^ (i * 32) ^ (k * 32)) + (step * 4 + k) * Tile::ROW_BYTES;
          if constexpr (WIDTH == 2) {
            float pair[2];
            ptx::ld_shared_v2(from, pair);
            x[i][0][k] = pair[0];
            x[i][1][k] = pair[1];
          } else {
            ptx::ld_shared(from, x[i][0][k]);
          }
        }
      }
    }
  }
};

struct Multiplier {
  FragmentReader<BLOCK_M, WARP_M, A_K_MAJOR, 1> reader_a;
  FragmentReader<BLOCK_N, WARP_N, B_K_MAJOR, 2> reader_b;
  float a[2][WARP_M / 8][1][4], b[2][WARP_N / 8][2][4];

  __device__ __forceinline__ Multiplier(u32 warp_m, u32 warp_n)
      : reader_a(warp_m * WARP_M, ptx::thread_index() % 32 / 4),
        reader_b(warp_n * WARP_N, ptx::thread_index() % 4 * 2) {}

  __device__ __forceinline__ void load(u32 smem, int step) {
    reader_a.load(smem, step, a[step % 2]);
    reader_b.load(smem + TileA::BYTES, step, b[step % 2]);
  }

  __device__ __forceinline__ void multiply(int step, float (&accumulators)[ACCUMULATORS]) {
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int i = 0; i < WARP_M / 8; ++i)
#pragma unroll
        for (int j = 0; j < WARP_N / 8; ++j)
#pragma unroll
          for (int w = 0; w < 2; ++w) {
            float& sum = accumulators[WarpFragment::block(i / 2, j) + i % 2 * 2 + w];
            sum = ptx::fma(a[step % 2][i][0][k], b[step % 2][j][w][k], sum);
          }
  }
};

}  // namespace jitgemm::device
