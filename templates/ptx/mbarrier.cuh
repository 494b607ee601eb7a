// sm_90: barriers in shared memory that count arrivals and bytes. A phase ends when `count` threads have arrived and
// every announced byte has landed; waits name the parity of the phase that they wait for.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

/// Makes initialised barriers visible to the asynchronous proxy. The block still needs a bar_sync.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/// Returns once the phase of this parity has ended; at once if it is the phase before the current one.
__device__ __forceinline__ void mbarrier_wait_parity(u32 barrier, u32 parity) {
  asm volatile(
      "{\n .reg .pred done;\n WAIT:\n mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n @!done bra WAIT;\n}" ::
          "r"(barrier),
      "r"(parity)
      : "memory");
}

}  // namespace jitgemm::device::ptx
#endif
