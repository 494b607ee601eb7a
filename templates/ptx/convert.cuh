// Conversions, rounding to nearest even, overflow to infinity, NaN to NaN. E4M3 and E5M2 (sm_89) saturate instead.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

__device__ __forceinline__ float to_f32(F16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
__device__ __forceinline__ float to_f32(BF16 x) { return __uint_as_float(u32(x.bits) << 16); }

__device__ __forceinline__ void convert(float x, F16& y) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
__device__ __forceinline__ void convert(float x, BF16& y) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }

/// Two elements in one register, `low` at the lower address.
__device__ __forceinline__ u32 pack(F16, float low, float high) {
  u32 y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
__device__ __forceinline__ u32 pack(BF16, float low, float high) {
  u32 y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
__device__ __forceinline__ u16 pack(E4M3, float low, float high) {
  u16 y;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(high), "f"(low));
  return y;
}
__device__ __forceinline__ u16 pack(E5M2, float low, float high) {
  u16 y;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(y) : "f"(high), "f"(low));
  return y;
}

/// Two neighbours, exactly.
__device__ __forceinline__ u32 to_f16x2(E4M3, u16 pair) {
  u32 y;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"(pair));
  return y;
}
__device__ __forceinline__ u32 to_f16x2(E5M2, u16 pair) {
  u32 y;
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(y) : "h"(pair));
  return y;
}

}  // namespace jitgemm::device::ptx
#endif
