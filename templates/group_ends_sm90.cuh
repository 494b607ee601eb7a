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

/// Ones in the bytes of a word from `begin` to `end`.
__device__ __forceinline__ u32 bytes_between(int begin, int end) { return first_bytes(end) & ~first_bytes(begin); }

/// Clears what an operand's k-block has beside `own`, by so many threads. Rows of k have 128 bytes in each box, cleared
/// or not whatever the swizzle within. Of rows along k, of which a thread has every THREADSth, the chunks of 16 bytes
/// at their ends are cleared in part.
template <int BLOCK, bool K_MAJOR, int THREADS>
__device__ __forceinline__ void clear_beside(u32 smem, const OwnK& own, int thread) {
  if constexpr (K_MAJOR) {
    const int begin = own.begin * int(sizeof(ElementA)), end = own.end * int(sizeof(ElementA));
#pragma unroll 1
    for (int chunk = 0; chunk < 8; ++chunk) {
      const int at = chunk * 16;  // in the row
      if (begin <= at && at + 16 <= end) continue;
      const U32x4 own_bytes{bytes_between(begin - at, end - at), bytes_between(begin - at - 4, end - at - 4),
                            bytes_between(begin - at - 8, end - at - 8), bytes_between(begin - at - 12, end - at - 12)};
#pragma unroll
      for (int row = thread; row < BLOCK; row += THREADS) {
        const u32 address = smem + row * 128 + (chunk ^ row % 8) * 16;
        U32x4 kept{0, 0, 0, 0};
        if (begin < at + 16 && at < end) {
          kept = ptx::ld_shared_v4(address);
          kept = {kept.x & own_bytes.x, kept.y & own_bytes.y, kept.z & own_bytes.z, kept.w & own_bytes.w};
        }
        ptx::st_shared_v4(address, kept);
      }
    }
  } else {
#pragma unroll 1
    for (int box = 0; box < ceil_div(BLOCK, BOX); ++box)
#pragma unroll 1
      for (int i = thread; i < BLOCK_K * 8; i += THREADS)
        if (i < own.begin * 8 || i >= own.end * 8)
          ptx::st_shared_v4(smem + box * BOX_BYTES + i * 16, U32x4{0, 0, 0, 0});
  }
}

/// Of a tile's first or last k-block, once it is there, before any consumer of it multiplies it.
__device__ __forceinline__ void clear_ends(const SharedMemory& smem, const PipelineState& state, const OwnK& own,
                                           u32 consumer, u32 thread) {
  constexpr int TOGETHER = PING_PONG ? 128 : CONSUMERS * 128;
  const int its = int(PING_PONG ? thread : consumer * 128 + thread);
  ptx::mbarrier_wait_parity(smem.full(state.stage), state.phase);
  clear_beside<BLOCK_M, A_K_MAJOR, TOGETHER>(smem.a(state.stage), own, its);
  clear_beside<BLOCK_N, B_K_MAJOR, TOGETHER>(smem.b(state.stage), own, its);
  ptx::fence_proxy_async();  // wgmma reads what ordinary stores wrote
  ptx::bar_sync(1 + (PING_PONG ? consumer : CONSUMERS), TOGETHER);
}

}  // namespace jitgemm::device
