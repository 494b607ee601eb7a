// Where this thread is, and what the compiler is to know of a value.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

__device__ __forceinline__ u32 thread_index() { return threadIdx.x; }
__device__ __forceinline__ u32 block_index() { return blockIdx.x; }
__device__ __forceinline__ u32 grid_size() { return gridDim.x; }

/// The value of lane 0, known to the compiler to be uniform across the warp. All 32 lanes call it.
__device__ __forceinline__ u32 warp_uniform(u32 value) { return __shfl_sync(0xffffffffu, value, 0); }

/// Has x computed here. Else the compiler may compute it where it is used, after a wait that would have hidden the
/// work.
template <typename T>
__device__ __forceinline__ void compute_now(T& x) {
  static_assert(sizeof(T) == 4);
  asm volatile("" : "+r"(x));
}
__device__ __forceinline__ void compute_now(float& x) { asm volatile("" : "+f"(x)); }

}  // namespace jitgemm::device::ptx
#endif
