// What a warp of the portable main loop does with a k-block, on tensor cores: ldmatrix and mma.sync in MMA_STEPS of 32
// bytes of k. Where the tensor cores know 8-bit floating point only through wgmma (MMA_FP8 is false), its fragments
// become f16 in registers, which is exact.
#pragma once
#include "epilogue.cuh"
#include "fragment.cuh"
#include "ide.cuh"
#include "operand_tile.cuh"
#include "ptx/convert.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared.cuh"
#include "ptx/special_registers.cuh"

namespace jitgemm::device {

constexpr int MMA_STEPS = BLOCK_K * int(sizeof(ElementA)) / 32;

// Byte transposition pairs neighbours: element 2i of 16 M (N) lies where ldmatrix leaves i of the lower 8, 2i + 1 where
// i of the upper 8. The sums do not care, what stores them does.
using WarpFragment = Fragment<1, WARP_N, sizeof(ElementA) == 1 && !A_K_MAJOR, sizeof(ElementB) == 1 && !B_K_MAJOR>;

/// Reads a warp's part of one operand as mma fragments: COUNT blocks of 16 (M or N) x 32 bytes (K), each of four
/// quarters of 8 x 16 bytes, a register each. mma wants A's quarters M first, and B's K first: then each half of a
/// block is the pair of registers that one n8 step takes.
///
/// The swizzle is an exclusive or, so that a step along a row, by a power of two of chunks, is one too, on any address
/// whose tile begins at a multiple of the row; a step by whole periods of rows is an addition.
template <typename Element, int BLOCK, int EXTENT, bool K_MAJOR, bool K_FIRST>
struct FragmentReader {
  using Tile = OperandTile<Element, BLOCK, K_MAJOR>;
  static constexpr int COUNT = EXTENT / 16, SIZE = sizeof(Element);
  static constexpr int K = 32 / SIZE;  // of an MMA step
  u32 base;                            // this lane's address in block 0, MMA step 0

  explicit __device__ __forceinline__ FragmentReader(u32 origin) {
    const u32 lane = ptx::thread_index() % 32, low = lane / 8 % 2, high = lane / 16;  // of the quarter's number
    const u32 mn8 = K_FIRST ? high : low, k8 = K_FIRST ? low : high;
    if constexpr (K_MAJOR)
      base = Tile::offset(origin + mn8 * 8 + lane % 8, k8);
    else if constexpr (SIZE == 2)
      base = Tile::offset(k8 * 8 + lane % 8, origin / 8 + mn8);
    else if constexpr (SIZE == 1)  // of 16 k, those that a thread needs pairwise: 0, 1, 4, 5, ... and 2, 3, 6, 7, ...
      base = Tile::offset(lane / 16 * 16 + lane % 8 / 2 * 4 + lane / 8 % 2 * 2 + lane % 2, origin / 16);
    else
      base = Tile::offset(lane % 4, origin / 4 + lane / 16) + lane / 4 % 4 * 4;
  }

  __device__ __forceinline__ void load(u32 tile, int step, u32 (&x)[COUNT][4]) const {
    const u32 first = tile + base;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      if constexpr (K_MAJOR) {
        ptx::ldmatrix_x4((first ^ (step * 32)) + i * 16 * Tile::ROW_BYTES, x[i]);
      } else if constexpr (SIZE == 2) {
        ptx::ldmatrix_x4_trans((first ^ (i * 32)) + step * K * Tile::ROW_BYTES, x[i]);
      } else if constexpr (SIZE == 1) {
        u32 pairs[4];  // bytes: k, k, k + 1, k + 1 of two neighbours; k + 2; the same 16 k on
        ptx::ldmatrix_x4_trans((first ^ (i * 16)) + step * K * Tile::ROW_BYTES, pairs);
        x[i][0] = ptx::prmt<0x6420>(pairs[0], pairs[1]);
        x[i][K_FIRST ? 2 : 1] = ptx::prmt<0x7531>(pairs[0], pairs[1]);
        x[i][K_FIRST ? 1 : 2] = ptx::prmt<0x6420>(pairs[2], pairs[3]);
        x[i][3] = ptx::prmt<0x7531>(pairs[2], pairs[3]);
      } else {
        const u32 from = (first ^ (i * 64)) + step * K * Tile::ROW_BYTES;
        x[i][0] = ptx::ld_shared_u32(from);
        x[i][K_FIRST ? 2 : 1] = ptx::ld_shared_u32(from ^ 32);
        x[i][K_FIRST ? 1 : 2] = ptx::ld_shared_u32(from + 4 * Tile::ROW_BYTES);
        x[i][3] = ptx::ld_shared_u32((from ^ 32) + 4 * Tile::ROW_BYTES);
      }
    }
  }
};

struct Multiplier {
  FragmentReader<ElementA, BLOCK_M, WARP_M, A_K_MAJOR, false> reader_a;
  FragmentReader<ElementB, BLOCK_N, WARP_N, B_K_MAJOR, true> reader_b;
  u32 a[2][WARP_M / 16][4], b[2][WARP_N / 16][4];

  __device__ __forceinline__ Multiplier(u32 warp_m, u32 warp_n)
      : reader_a(warp_m * WARP_M), reader_b(warp_n * WARP_N) {}

  __device__ __forceinline__ void load(u32 smem, int step) {
    reader_a.load(smem, step, a[step % 2]);
    reader_b.load(smem + TileA::BYTES, step, b[step % 2]);
  }

  __device__ __forceinline__ void multiply(int step, Accumulator (&accumulators)[ACCUMULATORS]) {
    if constexpr (sizeof(ElementA) == 1 && SAME<Accumulator, float> && !MMA_FP8) {
#pragma unroll
      for (int half = 0; half < 2; ++half) multiply_as_f16<ElementA, ElementB>(step, half, accumulators);
    } else {
      multiply_blocks<ElementA, ElementB>(accumulators, a[step % 2], [&](int j, u32& b0, u32& b1) {
        b0 = b[step % 2][j / 2][j % 2 * 2];
        b1 = b[step % 2][j / 2][j % 2 * 2 + 1];
      });
    }
  }

 private:
  /// `load_b` gives the fragment of the jth 8 columns.
  template <typename A, typename B, typename LoadB>
  static __device__ __forceinline__ void multiply_blocks(Accumulator (&accumulators)[ACCUMULATORS],
                                                         const u32 (&rows)[WARP_M / 16][4], const LoadB& load_b) {
#pragma unroll
    for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
      for (int j = 0; j < WARP_N / 8; ++j) {
        u32 b0, b1;
        load_b(j, b0, b1);
        ptx::mma_m16n8(A{}, B{}, reinterpret_cast<Accumulator(&)[4]>(accumulators[WarpFragment::block(i, j)]), rows[i],
                       b0, b1);
      }
  }

  /// 16 bytes of k. A thread's four neighbouring k take the places of an f16 fragment's two and two, in A and in B.
  template <typename A, typename B>
  __device__ __forceinline__ void multiply_as_f16(int step, int half, Accumulator (&accumulators)[ACCUMULATORS]) {
    u32 wide_a[WARP_M / 16][4], wide_b[WARP_N / 8][2];
#pragma unroll
    for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const u32 x = a[step % 2][i][half * 2 + h];
        wide_a[i][h] = ptx::to_f16x2(A{}, u16(x));
        wide_a[i][2 + h] = ptx::to_f16x2(A{}, u16(x >> 16));
      }
#pragma unroll
    for (int j = 0; j < WARP_N / 8; ++j) {
      const u32 x = b[step % 2][j / 2][j % 2 * 2 + half];
      wide_b[j][0] = ptx::to_f16x2(B{}, u16(x));
      wide_b[j][1] = ptx::to_f16x2(B{}, u16(x >> 16));
    }
    multiply_blocks<F16, F16>(accumulators, wide_a, [&](int j, u32& b0, u32& b1) {
      b0 = wide_b[j][0];
      b1 = wide_b[j][1];
    });
  }
};

}  // namespace jitgemm::device
