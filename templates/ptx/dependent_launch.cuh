// sm_90: programmatic dependent launch. A kernel may start before the one that it depends on has ended. In every
// kernel's text, but called only with DEPENDENT_LAUNCH: else a later kernel could overwrite what this one still reads.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

/// Returns once the kernels before have ended and what they wrote is visible. At once if there are none.
__device__ __forceinline__ void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// Lets the next kernel start when all blocks have called this or ended.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace jitgemm::device::ptx
#endif
