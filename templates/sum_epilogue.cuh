// What ranks have computed of the same elements, added up in the order of ranks, and then the epilogue, once. A thread
// has pairs of neighbours, or single elements where an operand's rows are not aligned to pairs.
#pragma once
#include "finish_sums.cuh"
#include "ide.cuh"
#include "ptx/dependent_launch.cuh"
#include "ptx/math.cuh"
#include "ptx/special_registers.cuh"
#include "sum_epilogue_arguments.cuh"

namespace jitgemm::device {

constexpr int THREADS = 256, BLOCKS_PER_SM = 8;

/// COUNT neighbours of a row.
template <int COUNT>
__device__ __forceinline__ void sum_and_finish(const SumEpilogueArguments& args, const EpilogueFunctor& functor,
                                               i64 row, i64 column) {
  const i64 in_sources = row * args.ld_sources + column;
  ElementCompute sum[COUNT];
  load_some<COUNT>(static_cast<const ElementC*>(args.sources[0]) + in_sources, sum);
#pragma unroll
  for (int source = 1; source < MOST_SOURCES; ++source) {
    if (source >= args.source_count) break;
    ElementCompute next[COUNT];
    load_some<COUNT>(static_cast<const ElementC*>(args.sources[source]) + in_sources, next);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) sum[i] = ptx::add(sum[i], next[i]);
  }
  finish_sums<COUNT>(args, functor, row, column, sum);
}

__device__ __forceinline__ void sum_epilogue(const SumEpilogueArguments& args) {
  if constexpr (DEPENDENT_LAUNCH) ptx::griddepcontrol_wait();
  const EpilogueFunctor functor = functor_of(args);
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
