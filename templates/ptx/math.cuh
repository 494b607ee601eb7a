// Arithmetic that C++ has no operator for. exp and ex2 overflow to infinity.
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

__device__ __forceinline__ float fma(float x, float y, float z) { return __fmaf_rn(x, y, z); }  // rounded once
__device__ __forceinline__ float erf(float x) { return ::erff(x); }
__device__ __forceinline__ double erf(double x) { return ::erf(x); }
__device__ __forceinline__ double exp(double x) { return ::exp(x); }

/// 2^x and 1 / x within 2^-22 of themselves; what is too small becomes 0.
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
