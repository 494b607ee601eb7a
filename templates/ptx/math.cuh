// Arithmetic by name: add, mul and fma are each rounded once, to nearest even, so that all kernels and the emulator
// compute the same bits. The compiler's option --fmad=false keeps it from contracting a product and a sum; only fma is
// one. Integers wrap, which C++ promises of unsigned ones alone.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

__device__ __forceinline__ float add(float x, float y) { return x + y; }
__device__ __forceinline__ double add(double x, double y) { return x + y; }
__device__ __forceinline__ int add(int x, int y) { return int(u32(x) + u32(y)); }

__device__ __forceinline__ float mul(float x, float y) { return x * y; }
__device__ __forceinline__ double mul(double x, double y) { return x * y; }
__device__ __forceinline__ int mul(int x, int y) { return int(u32(x) * u32(y)); }

/// x * y + z
__device__ __forceinline__ float fma(float x, float y, float z) { return __fmaf_rn(x, y, z); }
__device__ __forceinline__ double fma(double x, double y, double z) { return __fma_rn(x, y, z); }
__device__ __forceinline__ int fma(int x, int y, int z) { return int(u32(x) * u32(y) + u32(z)); }

__device__ __forceinline__ float abs(float x) { return ::fabsf(x); }
/// NaN where either is.
__device__ __forceinline__ float max_or_nan(float x, float y) {
  float z;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}

// Approximations, where the emulator has those of the host. Overflow is infinity.
/// Within 2 units in the last place.
__device__ __forceinline__ float erf(float x) { return ::erff(x); }
__device__ __forceinline__ double erf(double x) { return ::erf(x); }
__device__ __forceinline__ double exp2(double x) { return ::exp2(x); }

/// 2^x and 1 / x within 2^-22 of themselves; subnormal arguments and results become 0.
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float rcp(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace jitgemm::device::ptx
#endif
