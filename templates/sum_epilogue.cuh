// What ranks have computed of the same elements, added up in the order of ranks, and then the epilogue, once. A thread
// has pairs of neighbours, or single elements where an operand's rows are not aligned to pairs.
#pragma once
#include "functor.cuh"
#include "ide.cuh"
#include "memory.cuh"
#include "ptx/dependent_launch.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "ptx/special_registers.cuh"
#include "sum_epilogue_arguments.cuh"

namespace jitgemm::device {

constexpr int THREADS = 256, BLOCKS_PER_SM = 8;

template <int COUNT, typename T>
__device__ __forceinline__ void load_some(const T* p, ElementCompute (&x)[COUNT]) {
  if constexpr (COUNT == 2)
    load_pair(p, x[0], x[1]);
  else
    x[0] = load(p);
}

/// COUNT neighbours of a row.
template <int COUNT>
__device__ __forceinline__ void sum_and_finish(const SumEpilogueArguments& args, const EpilogueFunctor& functor,
                                               i64 row, i64 column) {
  const i64 in_sources = row * args.ld_sources + column;
  ElementCompute sum[COUNT], c[COUNT] = {}, bias[COUNT] = {};
  load_some<COUNT>(static_cast<const ElementC*>(args.sources[0]) + in_sources, sum);
#pragma unroll
  for (int source = 1; source < MOST_SOURCES; ++source) {
    if (source >= args.source_count) break;
    ElementCompute next[COUNT];
    load_some<COUNT>(static_cast<const ElementC*>(args.sources[source]) + in_sources, next);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) sum[i] = ptx::add(sum[i], next[i]);
  }
  if constexpr (READS_C) load_some<COUNT>(static_cast<const ElementC*>(args.c) + (row * args.ldc + column), c);
  if constexpr (BIAS != Bias::none) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      bias[i] = load(static_cast<const ElementC*>(args.bias) + (BIAS == Bias::along_m ? row : column + i));
  }
  const Factors factors{value(args.scalars.alpha), 1};
#pragma unroll
  for (int i = 0; i < COUNT; ++i) sum[i] = functor(sum[i], factors, c[i], bias[i]);
  ElementD* const d = static_cast<ElementD*>(args.d) + (row * args.ldd + column);
  if constexpr (COUNT == 2)
    store_pair(d, sum[0], sum[1]);
  else
    store(d, sum[0]);
}

__device__ __forceinline__ void sum_epilogue(const SumEpilogueArguments& args) {
  if constexpr (DEPENDENT_LAUNCH) ptx::griddepcontrol_wait();
  ElementCompute scale_d = 1;
  if constexpr (EpilogueFunctor::SCALES_D)
    scale_d = args.scale_d ? ElementCompute(ptx::ld_global<float>(args.scale_d)) : ElementCompute(1);
  const EpilogueFunctor functor{args.scalars, scale_d};
  constexpr int COUNT = IN_PAIRS ? 2 : 1;
  const i64 columns = args.n / COUNT, all = columns * args.m;  // D's rows end where a pair does, too
  const i64 step = i64(ptx::grid_size()) * THREADS;
#pragma unroll 1
  for (i64 at = i64(ptx::block_index()) * THREADS + ptx::thread_index(); at < all; at += step) {
    const i64 row = at / columns;
    sum_and_finish<COUNT>(args, functor, row, (at - row * columns) * COUNT);
  }
}

}  // namespace jitgemm::device
