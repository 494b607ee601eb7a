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

/// A constant as a type.
template <bool VALUE>
struct Flag {
  static constexpr bool value = VALUE;
};

// What is read is of ElementCompute or of 16 bits, what is written of ElementCompute or shorter.
template <typename T>
__device__ __forceinline__ ElementCompute load(const T* p) {
  if constexpr (SAME<T, ElementCompute>)
    return ptx::ld_global<T>(p);
  else
    return ptx::to_f32(T{ptx::ld_global<u16>(p)});
}
template <typename T>
__device__ __forceinline__ void unpack(T, u32 pair, ElementCompute& x, ElementCompute& y) {
  x = ptx::to_f32(T{u16(pair)});
  y = ptx::to_f32(T{u16(pair >> 16)});
}
template <typename T>
__device__ __forceinline__ void load_pair(const T* p, ElementCompute& x, ElementCompute& y) {
  if constexpr (SAME<T, ElementCompute>) {
    ptx::ld_global_v2(p, x, y);
  } else {
    unpack(T{}, ptx::ld_global<u32>(p), x, y);
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

/// Brings elements [first, first + COUNT) into the L1, by `threads` threads; what is not below `end` is replaced by the
/// last that is.
template <int COUNT, typename T>
__device__ __forceinline__ void prefetch_vector(const T* vector, int first, int end, u32 thread, u32 threads) {
  constexpr int LINE = 128 / int(sizeof(T));                      // elements
  for (int i = thread; i <= ceil_div(COUNT, LINE); i += threads)  // one more: the first may begin within a line
    ptx::prefetch_l1(vector + min_of(first + i * LINE, end - 1));
}

/// Who gives the epilogue nothing of what it reads, where StagedPair does (operands_ahead.cuh): no pairs of 16-bit
/// matrices, and no elements of vectors, each by its operand's number.
struct NotStaged {
  static constexpr bool HAS_MATRICES = false, HAS_VECTORS = false;
};

/// Where an operand of matrix `batch` begins, elements.
__device__ __forceinline__ i64 batch_offset(int batch, long long stride) { return BATCHED ? batch * stride : 0; }

}  // namespace jitgemm::device
