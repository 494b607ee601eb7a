// Shared memory, by its 32-bit address, a multiple of the access size.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

/// The block's dynamic shared memory; at least 16-byte aligned, round up for more.
__device__ __forceinline__ u32 dynamic_smem() {
  extern __shared__ unsigned char smem[];
  return static_cast<u32>(__cvta_generic_to_shared(smem));
}

__device__ __forceinline__ void st_shared_u8(u32 address, u8 x) {
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(address), "r"(u32(x)) : "memory");
}
__device__ __forceinline__ void st_shared_u32(u32 address, u32 x) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}
__device__ __forceinline__ void st_shared_u16(u32 address, u16 x) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(x) : "memory");
}
__device__ __forceinline__ void st_shared_v2(u32 address, u32 x, u32 y) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void st_shared_v4(u32 address, U32x4 x) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
               : "memory");
}

__device__ __forceinline__ u32 ld_shared_u32(u32 address) {
  u32 x;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}
__device__ __forceinline__ void ld_shared(u32 address, float& x) {
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
}
__device__ __forceinline__ void ld_shared(u32 address, double& x) {
  asm volatile("ld.shared.f64 %0, [%1];" : "=d"(x) : "r"(address) : "memory");
}
__device__ __forceinline__ void ld_shared_v2(u32 address, float (&x)[2]) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x[0]), "=f"(x[1]) : "r"(address) : "memory");
}
__device__ __forceinline__ void ld_shared_v4(u32 address, int (&x)[4]) {
  asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ld_shared_v4(u32 address, float (&x)[4]) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ U32x4 ld_shared_v4(u32 address) {
  U32x4 x;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(address)
               : "memory");
  return x;
}

/// Four 8 x 8 matrices of 16-bit elements. Lanes 8i..8i+7 give the addresses of matrix i's rows, 16 bytes each and
/// 16-byte aligned; lane l receives of each matrix row l / 4, elements 2 (l % 4) and the next. All 32 lanes call it.
__device__ __forceinline__ void ldmatrix_x4(u32 address, u32 (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}
/// The same, each matrix transposed: lane l receives column l / 4, elements 2 (l % 4) and the next.
__device__ __forceinline__ void ldmatrix_x4_trans(u32 address, u32 (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}

/// Four bytes of the eight of `low` and `high`, numbered from low's lowest, picked by the digits of `selector`, lowest
/// first.
template <u32 SELECTOR>
__device__ __forceinline__ u32 prmt(u32 low, u32 high) {
  return __byte_perm(low, high, SELECTOR);
}

}  // namespace jitgemm::device::ptx
#endif
