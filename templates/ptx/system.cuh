// What kernels of several devices, and copy engines, tell each other through memory.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

/// Acquires what whoever wrote the value has released, on any device.
__device__ __forceinline__ u32 ld_acquire_sys(const u32* address) {
  u32 x;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(address) : "memory");
  return x;
}
/// Releases this thread's earlier writes, and those that it knows of, to whoever acquires the value.
__device__ __forceinline__ void st_release_sys(u32* address, u32 x) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(x) : "memory");
}

/// Orders what this thread has acquired, or TMA has stored for it, and accesses of global memory by the other proxy
/// from here on: by TMA, or of what TMA has stored.
__device__ __forceinline__ void fence_proxy_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

__device__ __forceinline__ u64 global_nanoseconds() {
  u64 x;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(x));
  return x;
}
/// Lets others go first, for about so long.
__device__ __forceinline__ void nanosleep(u32 nanoseconds) { asm volatile("nanosleep.u32 %0;" ::"r"(nanoseconds)); }

}  // namespace jitgemm::device::ptx
#endif
