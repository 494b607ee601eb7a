// sm_90a: tensor cores fed from shared memory by a warpgroup (4 warps, the first a multiple of 4).
// d (64 x N) = a (64 x K) * b (K x N) + (accumulate ? d : 0), where K elements are 128 bytes, as four instructions of
// 32 bytes; asynchronous: between wgmma_fence and wgmma_wait_group the registers of d belong to the tensor cores. With
// w the warp of the group, g = lane / 4 and t = lane % 4, d[4j + 2h + e] is row 16w + g + 8h, column 8j + 2t + e.
//
// a and b are the first instruction's shared-memory descriptors (wgmma_descriptor), from one to the next STEP_A and
// STEP_B on. TRANSPOSE_A: a of 16-bit elements lies M-major, else K-major; TRANSPOSE_B: N-major. WGMMA_TEXT and
// WGMMA_D, at the top of the kernel, spell out the same, and N / 2 registers of d. Four statements instead of one take
// 5 % longer to compile.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

/// Orders earlier accesses of the accumulator registers, and of shared memory by this thread, before the next wgmma.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until at most PENDING committed groups are unfinished.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/// The warpgroup's registers a thread from here on: a multiple of 8 in 24..256. All of its warps call it.
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <typename A, typename B, bool TRANSPOSE_A, bool TRANSPOSE_B, u32 STEP_A, u32 STEP_B, typename D, int COUNT>
__device__ __forceinline__ void wgmma_k_block(D (&d)[COUNT], u64 a, u64 b, bool accumulate) {
  asm volatile(WGMMA_TEXT : WGMMA_D : "l"(a), "l"(b), "n"(STEP_A), "n"(STEP_B), "r"(int(accumulate)));
}

}  // namespace jitgemm::device::ptx
#endif
