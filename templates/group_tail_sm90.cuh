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

static_assert(!ALONG_K || (!A_K_MAJOR && !B_K_MAJOR), "TMA loads from multiples of 16 bytes of a row on");

/// What an operand's k-block has behind its first `count` elements of k, by so many threads: rows of 128 bytes in boxes
/// of BLOCK_K, whatever the swizzle within a row.
template <int BLOCK>
__device__ __forceinline__ void clear_behind(u32 smem, int count, u32 thread, u32 threads) {
#pragma unroll 1
  for (int box = 0; box < ceil_div(BLOCK, BOX); ++box)
#pragma unroll 1
    for (int i = count * 8 + int(thread); i < BLOCK_K * 8; i += int(threads))
      ptx::st_shared_v4(smem + box * BOX_BYTES + i * 16, U32x4{0, 0, 0, 0});
}

/// Of a tile's last k-block, once it is there, before any consumer of it multiplies it.
__device__ __forceinline__ void clear_tail(const SharedMemory& smem, const PipelineState& state, int count,
                                           u32 consumer, u32 thread) {
  constexpr u32 TOGETHER = PING_PONG ? 128 : CONSUMERS * 128;
  const u32 own = PING_PONG ? thread : consumer * 128 + thread;
  ptx::mbarrier_wait_parity(smem.full(state.stage), state.phase);
  clear_behind<BLOCK_M>(smem.a(state.stage), count, own, TOGETHER);
  clear_behind<BLOCK_N>(smem.b(state.stage), count, own, TOGETHER);
  ptx::fence_proxy_async();  // wgmma reads what ordinary stores wrote
  ptx::bar_sync(1 + (PING_PONG ? consumer : CONSUMERS), TOGETHER);
}

}  // namespace jitgemm::device
