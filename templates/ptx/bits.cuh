// Numbers from their bit patterns.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

__device__ __forceinline__ float from_bits(float, u32 bits) { return __uint_as_float(bits); }
__device__ __forceinline__ int from_bits(int, u32 bits) { return int(bits); }
__device__ __forceinline__ double from_bits(double, u64 bits) { return __longlong_as_double(i64(bits)); }

}  // namespace jitgemm::device::ptx
#endif
