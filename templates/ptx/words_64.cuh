// Words of 64 bits in shared memory, and the float that a TF32 is. ptx::ld_global and st_global take long long, too.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

__device__ __forceinline__ void st_shared(u32 address, double x) {
  asm volatile("st.shared.f64 [%0], %1;" ::"r"(address), "d"(x) : "memory");
}
__device__ __forceinline__ void st_shared(u32 address, i64 x) {
  asm volatile("st.shared.s64 [%0], %1;" ::"r"(address), "l"(x) : "memory");
}
__device__ __forceinline__ void ld_shared(u32 address, i64& x) {
  asm volatile("ld.shared.s64 %0, [%1];" : "=l"(x) : "r"(address) : "memory");
}

__device__ __forceinline__ float to_f32(TF32 x) { return __uint_as_float(x.bits); }

}  // namespace jitgemm::device::ptx
#endif
