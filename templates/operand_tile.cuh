// How one operand's part of a k-step lies in shared memory for the portable main loop: rows of contiguous elements,
// their 16-byte chunks swizzled so that what reads them finds no bank conflict.

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
constexpr int LONGEST_ROW = TileA::ROW_BYTES > TileB::ROW_BYTES ? TileA::ROW_BYTES : TileB::ROW_BYTES;
constexpr int SMEM_ALIGN = LONGEST_ROW > 128 ? LONGEST_ROW : 128;  // exclusive ors of addresses need it; all banks
constexpr int STAGE_BYTES = TileA::BYTES + TileB::BYTES;

constexpr int WARP_M = BLOCK_M / WARPS_M, WARP_N = BLOCK_N / WARPS_N;
constexpr int ACCUMULATORS = WARP_M * WARP_N / 32;  // a thread
static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0, "a warp's tile is a multiple of 16 x 16");

}  // namespace jitgemm::device
