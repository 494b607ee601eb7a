// Groups along k in the Hopper loop: a group's first and last k-block have what is not its own, since TMA clips at the
// matrix's end alone, and along a row of k loads from multiples of 16 bytes on. Consumers overwrite that with zeros, of
// both operands, as zero times another group's NaN is NaN.
#pragma once
#include "groups.cuh"
#include "ide_sm90.cuh"
#include "layout_sm90.cuh"
#include "ptx/barrier.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/tma.cuh"

namespace jitgemm::device {

/// Of a k-block, the elements of k that are the group's: half-open, the end may lie beyond the k-block's.
struct OwnK {
  int begin, end;

  __device__ __forceinline__ bool is_all() const { return begin == 0 && end >= BLOCK_K; }
};

/// Ones in the first `count` bytes of a word.
__device__ __forceinline__ u32 first_bytes(int count) {
  return count <= 0 ? 0 : count >= 4 ? 0xffffffffu : (1u << count * 8) - 1;
}

/// Clears what an operand's k-block has beside `own`, by so many threads. Rows of k have 128 bytes in each box, cleared
/// or not whatever the swizzle within. Of rows along k the chunks of 16 bytes at their ends are cleared in part.
template <int BLOCK, bool K_MAJOR>
__device__ __forceinline__ void clear_beside(u32 smem, const OwnK& own, u32 thread, u32 threads) {
  if constexpr (K_MAJOR) {
    const int begin = own.begin * int(sizeof(ElementA)), end = own.end * int(sizeof(ElementA));
#pragma unroll 1
    for (int i = int(thread); i < BLOCK * 8; i += int(threads)) {
      const int at = (i ^ i / 8) % 8 * 16;  // in the row; chunk c lies at c ^ row % 8
      if (begin <= at && at + 16 <= end) continue;
      const auto own_bytes = [&](int word) {
        return first_bytes(end - at - word * 4) & ~first_bytes(begin - at - word * 4);
      };
      U32x4 chunk{0, 0, 0, 0};
      if (begin < at + 16 && at < end) {
        chunk = ptx::ld_shared_v4(smem + i * 16);
        chunk = {chunk.x & own_bytes(0), chunk.y & own_bytes(1), chunk.z & own_bytes(2), chunk.w & own_bytes(3)};
      }
      ptx::st_shared_v4(smem + i * 16, chunk);
    }
  } else {
#pragma unroll 1
    for (int box = 0; box < ceil_div(BLOCK, BOX); ++box)
#pragma unroll 1
      for (int i = int(thread); i < BLOCK_K * 8; i += int(threads))
        if (i < own.begin * 8 || i >= own.end * 8)
          ptx::st_shared_v4(smem + box * BOX_BYTES + i * 16, U32x4{0, 0, 0, 0});
  }
}

/// Of a tile's first or last k-block, once it is there, before any consumer of it multiplies it.
__device__ __forceinline__ void clear_ends(const SharedMemory& smem, const PipelineState& state, const OwnK& own,
                                           u32 consumer, u32 thread) {
  constexpr u32 TOGETHER = PING_PONG ? 128 : CONSUMERS * 128;
  const u32 its = PING_PONG ? thread : consumer * 128 + thread;
  ptx::mbarrier_wait_parity(smem.full(state.stage), state.phase);
  clear_beside<BLOCK_M, A_K_MAJOR>(smem.a(state.stage), own, its, TOGETHER);
  clear_beside<BLOCK_N, B_K_MAJOR>(smem.b(state.stage), own, its, TOGETHER);
  ptx::fence_proxy_async();  // wgmma reads what ordinary stores wrote
  ptx::bar_sync(1 + (PING_PONG ? consumer : CONSUMERS), TOGETHER);
}

}  // namespace jitgemm::device
