// What becomes of sums that lie in memory, some neighbours of a row at a time: C and bias, the epilogue, D. Of several
// neighbours each pair lies where a pair may be read or written at once.
#pragma once
#include "finish_sums_arguments.cuh"
#include "functor.cuh"
#include "ide.cuh"
#include "memory.cuh"
#include "ptx/global.cuh"

namespace jitgemm::device {

template <int COUNT, typename T>
__device__ __forceinline__ void load_some(const T* p, ElementCompute (&x)[COUNT]) {
  if constexpr (COUNT == 1) {
    x[0] = load(p);
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; i += 2) load_pair(p + i, x[i], x[i + 1]);
  }
}
template <int COUNT, typename T>
__device__ __forceinline__ void store_some(T* p, const ElementCompute (&x)[COUNT]) {
  if constexpr (COUNT == 1) {
    store(p, x[0]);
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; i += 2) store_pair(p + i, x[i], x[i + 1]);
  }
}

__device__ __forceinline__ EpilogueFunctor functor_of(const FinishSumsArguments& args) {
  ElementCompute scale_d = 1;
  if constexpr (EpilogueFunctor::SCALES_D)
    scale_d = args.scale_d ? ElementCompute(ptx::ld_global<float>(args.scale_d)) : ElementCompute(1);
  return {args.scalars, scale_d};
}

/// Of COUNT neighbours from (row, column) on.
template <int COUNT>
__device__ __forceinline__ void finish_sums(const FinishSumsArguments& args, const EpilogueFunctor& functor, i64 row,
                                            i64 column, ElementCompute (&sums)[COUNT]) {
  ElementCompute c[COUNT] = {}, bias[COUNT] = {};
  if constexpr (READS_C) load_some<COUNT>(static_cast<const ElementC*>(args.c) + (row * args.ldc + column), c);
  if constexpr (BIAS != Bias::none) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      bias[i] = load(static_cast<const ElementC*>(args.bias) + (BIAS == Bias::along_m ? row : column + i));
  }
  const Factors factors{value(args.scalars.alpha), 1};
#pragma unroll
  for (int i = 0; i < COUNT; ++i) sums[i] = functor(sums[i], factors, c[i], bias[i]);
  store_some<COUNT>(static_cast<ElementD*>(args.d) + (row * args.ldd + column), sums);
}

}  // namespace jitgemm::device
