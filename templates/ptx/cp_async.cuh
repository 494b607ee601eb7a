// Asynchronous copies of 4, 8 or 16 bytes from global to shared memory, both addresses a multiple of that.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

/// Copies BYTES from `global` to `shared`, or zeros without reading `global`.
template <int BYTES>
__device__ __forceinline__ void cp_async(u32 shared, const void* global, bool reads) {
  const u32 bytes = reads ? BYTES : 0;
  if constexpr (BYTES == 16)  // past L1: each block reads its tile once
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(global), "n"(BYTES), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most PENDING of this thread's committed groups are unfinished.
template <int PENDING>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

}  // namespace jitgemm::device::ptx
#endif
