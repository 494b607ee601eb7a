// Elements and pairs of neighbours in device memory, as what the epilogue computes with.
#pragma once
#include "ide.cuh"
#include "ptx/convert.cuh"
#include "ptx/global.cuh"

namespace jitgemm::device {

template <typename, typename>
constexpr bool SAME = false;
template <typename T>
constexpr bool SAME<T, T> = true;

// What is read is of ElementCompute or of 16 bits, what is written of ElementCompute or shorter.
template <typename T>
__device__ __forceinline__ ElementCompute load(const T* p) {
  if constexpr (SAME<T, ElementCompute>)
    return ptx::ld_global<T>(p);
  else
    return ptx::to_f32(T{ptx::ld_global<u16>(p)});
}
template <typename T>
__device__ __forceinline__ void load_pair(const T* p, ElementCompute& x, ElementCompute& y) {
  if constexpr (SAME<T, ElementCompute>) {
    ptx::ld_global_v2(p, x, y);
  } else {
    const u32 pair = ptx::ld_global<u32>(p);
    x = ptx::to_f32(T{u16(pair)});
    y = ptx::to_f32(T{u16(pair >> 16)});
  }
}
template <typename T>
__device__ __forceinline__ void store(T* p, ElementCompute x) {
  if constexpr (SAME<T, ElementCompute>)
    ptx::st_global(p, x);
  else
    ptx::st_global(p, decltype(T::bits)(ptx::pack(T{}, x, x)));
}
template <typename T>
__device__ __forceinline__ void store_pair(T* p, ElementCompute x, ElementCompute y) {
  if constexpr (SAME<T, ElementCompute>)
    ptx::st_global_v2(p, x, y);
  else
    ptx::st_global(p, ptx::pack(T{}, x, y));
}

/// Where an operand of matrix `batch` begins, elements.
__device__ __forceinline__ i64 batch_offset(int batch, long long stride) { return BATCHED ? batch * stride : 0; }

}  // namespace jitgemm::device
