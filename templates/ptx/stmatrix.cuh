// sm_90: the inverse of ldmatrix.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

/// Lanes 8i..8i+7 give the addresses of matrix i's rows; lane l holds of each matrix row l / 4, elements 2 (l % 4) and
/// the next, TRANSPOSED: column l / 4. All 32 lanes call it.
template <bool TRANSPOSED>
__device__ __forceinline__ void stmatrix_x4(u32 address, u32 x0, u32 x1, u32 x2, u32 x3) {
  if constexpr (TRANSPOSED)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x0),
                 "r"(x1), "r"(x2), "r"(x3)
                 : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x0), "r"(x1),
                 "r"(x2), "r"(x3)
                 : "memory");
}

/// The same with two matrices, whose rows lanes 0..15 give.
template <bool TRANSPOSED>
__device__ __forceinline__ void stmatrix_x2(u32 address, u32 x0, u32 x1) {
  if constexpr (TRANSPOSED)
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(x0), "r"(x1)
                 : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(x0), "r"(x1)
                 : "memory");
}

/// The same with one, whose rows lanes 0..7 give.
template <bool TRANSPOSED>
__device__ __forceinline__ void stmatrix_x1(u32 address, u32 x) {
  if constexpr (TRANSPOSED)
    asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(address), "r"(x) : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(address), "r"(x) : "memory");
}

}  // namespace jitgemm::device::ptx
#endif
