// sm_90: one thread of a warp.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

/// True in one of the 32 lanes, which all call it. What that lane does the compiler knows to be done once: under any
/// other condition it wraps a loop over the lanes around each TMA and mbarrier instruction.
__device__ __forceinline__ bool elect_one() {
  u32 elected;
  asm volatile("{\n .reg .pred elected;\n elect.sync _|elected, 0xffffffff;\n selp.u32 %0, 1, 0, elected;\n}"
               : "=r"(elected));
  return elected != 0;
}

}  // namespace jitgemm::device::ptx
#endif
