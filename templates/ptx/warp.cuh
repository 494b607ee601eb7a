// What the lanes of a warp tell each other. All 32 call these together.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

/// The value of that lane, the same in all.
__device__ __forceinline__ u32 shuffle(u32 value, u32 lane) { return __shfl_sync(0xffffffffu, value, int(lane)); }
__device__ __forceinline__ float shuffle(float value, u32 lane) { return __shfl_sync(0xffffffffu, value, int(lane)); }

/// The value of so many lanes before; its own where there is none.
__device__ __forceinline__ u32 shuffle_up(u32 value, u32 by) { return __shfl_up_sync(0xffffffffu, value, by); }

/// A bit for each lane.
__device__ __forceinline__ u32 ballot(bool predicate) { return __ballot_sync(0xffffffffu, predicate); }

/// The place of the lowest, of the highest bit that is set; one is.
__device__ __forceinline__ int lowest_bit(u32 bits) { return __ffs(int(bits)) - 1; }
__device__ __forceinline__ int highest_bit(u32 bits) { return 31 - __clz(int(bits)); }

}  // namespace jitgemm::device::ptx
#endif
