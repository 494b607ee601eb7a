// Elements and pairs of neighbours in device memory, as the accumulator's type.
#pragma once
#include "ide.cuh"
#include "ptx/convert.cuh"
#include "ptx/global.cuh"

namespace jitgemm::device {

template <typename, typename>
constexpr bool SAME = false;
template <typename T>
constexpr bool SAME<T, T> = true;

// What is read is of the accumulator's type or of 16 bits, what is written of the accumulator's type or shorter.
template <typename T>
__device__ __forceinline__ Accumulator load(const T* p) {
  if constexpr (SAME<T, Accumulator>)
    return ptx::ld_global<T>(p);
  else
    return ptx::to_f32(T{ptx::ld_global<u16>(p)});
}
template <typename T>
__device__ __forceinline__ void load_pair(const T* p, Accumulator& x, Accumulator& y) {
  if constexpr (SAME<T, Accumulator>) {
    ptx::ld_global_v2(p, x, y);
  } else {
    const u32 pair = ptx::ld_global<u32>(p);
    x = ptx::to_f32(T{u16(pair)});
    y = ptx::to_f32(T{u16(pair >> 16)});
  }
}
template <typename T>
__device__ __forceinline__ void store(T* p, Accumulator x) {
  if constexpr (SAME<T, Accumulator>)
    ptx::st_global(p, x);
  else
    ptx::st_global(p, decltype(T::bits)(ptx::pack(T{}, x, x)));
}
template <typename T>
__device__ __forceinline__ void store_pair(T* p, Accumulator x, Accumulator y) {
  if constexpr (SAME<T, Accumulator>)
    ptx::st_global_v2(p, x, y);
  else
    ptx::st_global(p, ptx::pack(T{}, x, y));
}

/// Where an operand of matrix `batch` begins, elements.
__device__ __forceinline__ i64 batch_offset(int batch, long long stride) { return BATCHED ? batch * stride : 0; }

}  // namespace jitgemm::device
