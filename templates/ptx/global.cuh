// Loads and stores of global memory. The address is a multiple of the access size.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

/// T is an integer of 8, 16 or 32 bits, float or double.
template <typename T>
__device__ __forceinline__ T ld_global(const void* address) {
  return *static_cast<const T*>(address);
}
template <typename T>
__device__ __forceinline__ void st_global(void* address, T x) {
  *static_cast<T*>(address) = x;
}

/// Two neighbours at once.
__device__ __forceinline__ void ld_global_v2(const float* address, float& x, float& y) {
  asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "l"(address) : "memory");
}
__device__ __forceinline__ void ld_global_v2(const int* address, int& x, int& y) {
  asm volatile("ld.global.v2.s32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "l"(address) : "memory");
}
__device__ __forceinline__ void ld_global_v2(const double* address, double& x, double& y) {
  asm volatile("ld.global.v2.f64 {%0, %1}, [%2];" : "=d"(x), "=d"(y) : "l"(address) : "memory");
}
__device__ __forceinline__ void st_global_v2(float* address, float x, float y) {
  asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(address), "f"(x), "f"(y) : "memory");
}
__device__ __forceinline__ void st_global_v2(int* address, int x, int y) {
  asm volatile("st.global.v2.s32 [%0], {%1, %2};" ::"l"(address), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void st_global_v2(double* address, double x, double y) {
  asm volatile("st.global.v2.f64 [%0], {%1, %2};" ::"l"(address), "d"(x), "d"(y) : "memory");
}

/// 16 bytes, cached in L2 alone: for data that another block wrote during this launch, or will read.
__device__ __forceinline__ void ld_global_cg(const float* address, float (&x)[4]) {
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
               : "l"(address)
               : "memory");
}
__device__ __forceinline__ void ld_global_cg(const int* address, int (&x)[4]) {
  asm volatile("ld.global.cg.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "l"(address)
               : "memory");
}
__device__ __forceinline__ void ld_global_cg(const double* address, double (&x)[2]) {
  asm volatile("ld.global.cg.v2.f64 {%0, %1}, [%2];" : "=d"(x[0]), "=d"(x[1]) : "l"(address) : "memory");
}
__device__ __forceinline__ void st_global_cg(float* address, const float (&x)[4]) {
  asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
               : "memory");
}
__device__ __forceinline__ void st_global_cg(int* address, const int (&x)[4]) {
  asm volatile("st.global.cg.v4.s32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}
__device__ __forceinline__ void st_global_cg(double* address, const double (&x)[2]) {
  asm volatile("st.global.cg.v2.f64 [%0], {%1, %2};" ::"l"(address), "d"(x[0]), "d"(x[1]) : "memory");
}

/// Brings the line that holds `address` into the L2, or into the L1, too.
__device__ __forceinline__ void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}
__device__ __forceinline__ void prefetch_l1(const void* address) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(address));
}

/// Returns the old value and stores old >= limit ? 0 : old + 1. Releases this thread's earlier writes, and those of the
/// threads that it has synchronised with, to whoever acquires; acquires theirs.
__device__ __forceinline__ u32 atom_inc_acq_rel_gpu(u32* address, u32 limit) {
  u32 old;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(address), "r"(limit) : "memory");
  return old;
}

/// The same, but nothing is released and nothing acquired, so that the thread waits for the value alone, where it is
/// used.
__device__ __forceinline__ u32 atom_inc_relaxed_gpu(u32* address, u32 limit) {
  u32 old;
  asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(address), "r"(limit) : "memory");
  return old;
}

}  // namespace jitgemm::device::ptx
#endif
