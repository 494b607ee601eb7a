// How one operand's part of a k-block lies in shared memory for the portable main loop: rows of contiguous elements,
// their 16-byte chunks swizzled so that what reads them finds no bank conflict.
#pragma once
#include "ide_sm80.cuh"

namespace jitgemm::device {

/// OUTER rows of INNER elements of SIZE bytes.
template <int OUTER, int INNER, int SIZE, bool K_MAJOR>
struct SmemTile {
  static constexpr int ROW_BYTES = INNER * SIZE, CHUNKS = ROW_BYTES / 16;
  static constexpr int BYTES = OUTER * ROW_BYTES;
  static constexpr int PERIOD = !K_MAJOR && SIZE == 1 ? 16 : 8;  // rows after which the swizzle repeats

  static constexpr __device__ __forceinline__ u32 phase(u32 row) {
    if constexpr (!K_MAJOR && SIZE == 1)  // ldmatrix reads rows 0, 1, 4, 5, 8, 9, 12, 13, or 2 more
      return (row % 2 | (row / 2 & 6)) % CHUNKS;
    else if constexpr (SIZE == 8 || (!K_MAJOR && SIZE == 4))  // a load reads two chunks of each of 4 rows
      return row % 4 * 2 % CHUNKS;
    else if constexpr (ROW_BYTES >= 128)  // ldmatrix reads 8 rows
      return row % 8;
    else
      return row / (128 / ROW_BYTES) % CHUNKS;
  }

  static constexpr __device__ __forceinline__ u32 offset(u32 row, u32 chunk) {
    return row * ROW_BYTES + (chunk ^ phase(row)) * 16;
  }
};

template <typename Element, int BLOCK, bool K_MAJOR>
struct OperandTile : SmemTile<BLOCK, BLOCK_K, sizeof(Element), true> {};
template <typename Element, int BLOCK>
struct OperandTile<Element, BLOCK, false> : SmemTile<BLOCK_K, BLOCK, sizeof(Element), false> {};

using TileA = OperandTile<ElementA, BLOCK_M, A_K_MAJOR>;
using TileB = OperandTile<ElementB, BLOCK_N, B_K_MAJOR>;
constexpr int SMEM_ALIGN = GEOMETRY.smem_align, STAGE_BYTES = GEOMETRY.stage_bytes;
static_assert(TileA::BYTES + TileB::BYTES == STAGE_BYTES, "the tiles are as long as the geometry says");

constexpr int WARPS_M = GEOMETRY.warps_m, WARPS_N = GEOMETRY.warps_n;
constexpr int WARP_M = GEOMETRY.warp_m, WARP_N = GEOMETRY.warp_n;
constexpr int ACCUMULATORS = GEOMETRY.accumulators;  // a thread

}  // namespace jitgemm::device
