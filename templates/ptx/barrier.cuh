// Barriers among the first or some threads of a block: `threads`, a multiple of 32, must arrive at barrier `id`, 0..15.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

__device__ __forceinline__ void bar_sync(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Also tells every thread whether `predicate` held in any of them.
__device__ __forceinline__ bool bar_red_or(u32 id, u32 threads, bool predicate) {
  u32 any;
  asm volatile("{\n .reg .pred p, q;\n setp.ne.u32 p, %3, 0;\n bar.red.or.pred q, %1, %2, p;\n selp.u32 %0, 1, 0, q;\n}"
               : "=r"(any)
               : "r"(id), "r"(threads), "r"(u32(predicate))
               : "memory");
  return any != 0;
}

__device__ __forceinline__ void warp_sync() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

}  // namespace jitgemm::device::ptx
#endif
