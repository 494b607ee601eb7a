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

// Words of 64 bits, one or two neighbours: each is an access of its own, whole at any moment, and orders no other. The
// address is a multiple of the access size.
__device__ __forceinline__ void st_relaxed_sys(u64* address, const u64 (&x)[1]) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(address), "l"(x[0]) : "memory");
}
__device__ __forceinline__ void st_relaxed_sys(u64* address, const u64 (&x)[2]) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(address), "l"(x[0]), "l"(x[1]) : "memory");
}
__device__ __forceinline__ void ld_relaxed_sys(const u64* address, u64 (&x)[1]) {
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(x[0]) : "l"(address) : "memory");
}
__device__ __forceinline__ void ld_relaxed_sys(const u64* address, u64 (&x)[2]) {
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(x[0]), "=l"(x[1]) : "l"(address) : "memory");
}

/// Orders what this thread has acquired, or TMA has stored for it, and accesses of global memory by the other proxy
/// from here on: by TMA, or of what TMA has stored.
__device__ __forceinline__ void fence_proxy_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

__device__ __forceinline__ u64 global_nanoseconds() {
  u64 x;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(x));
  return x;
}
/// Of a thread that polls without a sleep. The emulator lets others go first; a GPU's threads do so by themselves.
__device__ __forceinline__ void between_polls() {}
/// Lets others go first, for about so long.
__device__ __forceinline__ void nanosleep(u32 nanoseconds) { asm volatile("nanosleep.u32 %0;" ::"r"(nanoseconds)); }

}  // namespace jitgemm::device::ptx
#endif
