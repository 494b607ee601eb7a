// Groups along k in the Hopper loop: a group's last k-block goes on with what is not its own, since TMA clips at the
// matrix's end alone. Consumers overwrite that with zeros, of both operands, as zero times another group's NaN is NaN.
#pragma once
#include "groups.cuh"
#include "ide_sm90.cuh"
#include "layout_sm90.cuh"
#include "ptx/barrier.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/tma.cuh"

namespace jitgemm::device {

/// What an operand's k-block has behind its first `count` elements of k, by so many threads.
template <int BLOCK, bool K_MAJOR>
__device__ __forceinline__ void clear_behind(u32 smem, int count, u32 thread, u32 threads) {
  const U32x4 zeros{0, 0, 0, 0};
  if constexpr (K_MAJOR) {  // a row of 128 bytes has its 16-byte chunk c at c ^ row % 8
    const int bytes = count * int(sizeof(ElementA));
#pragma unroll 1
    for (int i = int(thread); i < BLOCK * 8; i += int(threads)) {
      const int row = i / 8, chunk = i % 8, kept = bytes - chunk * 16;
      if (kept >= 16) continue;
      const u32 to = smem + row * 128 + (chunk ^ row % 8) * 16;
      U32x4 words = zeros;
      if (kept > 0) {
        words = ptx::ld_shared_v4(to);
        const auto keep = [kept](u32& word, int at) {
          if (kept <= at) word = 0;
          if (kept > at && kept < at + 4) word &= (1u << (kept - at) * 8) - 1;
        };
        keep(words.x, 0);
        keep(words.y, 4);
        keep(words.z, 8);
        keep(words.w, 12);
      }
      ptx::st_shared_v4(to, words);
    }
  } else {  // boxes of BLOCK_K rows of 128 bytes, whatever the swizzle within a row
#pragma unroll 1
    for (int box = 0; box < ceil_div(BLOCK, BOX); ++box)
#pragma unroll 1
      for (int i = count * 8 + int(thread); i < BLOCK_K * 8; i += int(threads))
        ptx::st_shared_v4(smem + box * BOX_BYTES + i * 16, zeros);
  }
}

/// Of a tile's last k-block, once it is there, before any consumer of it multiplies it.
__device__ __forceinline__ void clear_tail(const SharedMemory& smem, const PipelineState& state, int count,
                                           u32 consumer, u32 thread) {
  constexpr u32 TOGETHER = PING_PONG ? 128 : CONSUMERS * 128;
  const u32 own = PING_PONG ? thread : consumer * 128 + thread;
  ptx::mbarrier_wait_parity(smem.full(state.stage), state.phase);
  clear_behind<BLOCK_M, A_K_MAJOR>(smem.a(state.stage), count, own, TOGETHER);
  clear_behind<BLOCK_N, B_K_MAJOR>(smem.b(state.stage), count, own, TOGETHER);
  ptx::fence_proxy_async();  // wgmma reads what ordinary stores wrote
  ptx::bar_sync(1 + (PING_PONG ? consumer : CONSUMERS), TOGETHER);
}

}  // namespace jitgemm::device
