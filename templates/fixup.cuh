// How a split tile becomes one. Each contributor stores its partial sums in a slot of its own and counts up; whoever
// comes last adds the slots in k order and goes on to the epilogue. Nobody waits for another cluster, so no order of
// execution can hang, and who comes last does not change a bit of the result. The count wraps to zero for the next
// launch.
#pragma once
#include "arguments.cuh"
#include "ide.cuh"
#include "ptx/barrier.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"

namespace jitgemm::device {

/// For the `group`th of GROUPS groups of GROUP_THREADS threads, each with its part of the tile's accumulators; in what
/// order does not matter, as all contributors hold them alike. `barrier` is the group's own. `work()` is asked again
/// wherever it is needed, so that it may live in memory and not in registers. A thread has registers for LOADS vectors
/// of 16 bytes beside its accumulators. Returns whether these now hold the whole tile, which is so for one contributor.
template <int GROUPS, int GROUP_THREADS, int LOADS, int COUNT, typename GetWork>
__device__ __forceinline__ bool reduce_peers(const Arguments& args, const GetWork& work, u32 group, u32 thread,
                                             u32 barrier, Accumulator (&accumulators)[COUNT]) {
  constexpr int VECTOR = 16 / sizeof(Accumulator);
  static_assert(GROUPS * GROUP_THREADS * COUNT == BLOCK_M * BLOCK_N * CLUSTER_M * CLUSTER_N && COUNT % VECTOR == 0);
  if constexpr (!splits_tiles(PARTITION)) return true;
  if (work().peers == 1) return true;

  const auto slot = [&](int tile, int peer) {
    return static_cast<Accumulator*>(args.partials) +
           slot_of<PARTITION>(args.decomposition, tile, peer) * (GROUPS * GROUP_THREADS * COUNT) +
           (group * GROUP_THREADS * COUNT + thread * VECTOR);
  };
  Accumulator* own = slot(work().tile, work().peer);
#pragma unroll
  for (int i = 0; i < COUNT; i += VECTOR)
    ptx::st_global_cg(own + i * GROUP_THREADS, reinterpret_cast<const Accumulator(&)[VECTOR]>(accumulators[i]));

  ptx::bar_sync(barrier, GROUP_THREADS);  // all of the group's partials are under the release that follows
  bool last = false;
  if (thread == 0) {
    const u32 limit = work().peers - 1;
    last = ptx::atom_inc_acq_rel_gpu(args.counters + work().tile * GROUPS + group, limit) == limit;
  }
  if (!ptx::bar_red_or(barrier, GROUP_THREADS, last)) return false;

#pragma unroll
  for (int i = 0; i < COUNT; ++i) accumulators[i] = 0;
  // As many loads are on their way at a time: of one peer's slot, or of several where each has few.
  constexpr int VECTORS = COUNT / VECTOR, PEERS = VECTORS < LOADS ? LOADS / VECTORS : 1;
  const auto load = [](const Accumulator* partial, int vector, Accumulator(&x)[VECTOR]) {
    ptx::ld_global_cg(partial + vector * (VECTOR * GROUP_THREADS), x);
  };
  const auto add = [&](int vector, const Accumulator(&x)[VECTOR]) {
#pragma unroll
    for (int i = 0; i < VECTOR; ++i)
      accumulators[vector * VECTOR + i] = ptx::add(accumulators[vector * VECTOR + i], x[i]);
  };
#pragma unroll 1
  for (int first = 0; first < work().peers; first += PEERS) {
    if constexpr (PEERS == 1) {
      const Accumulator* partial = slot(work().tile, first);
#pragma unroll
      for (int i = 0; i < VECTORS; ++i) {
        Accumulator x[VECTOR];
        load(partial, i, x);
        add(i, x);
        if ((i + 1) % LOADS == 0) ptx::warp_sync();  // holds back the loads that follow, to spare registers
      }
    } else {
      const int left = work().peers - first;
      const auto is_there = [&](int peer) { return peer == 0 || peer < left; };
      Accumulator x[PEERS][VECTORS][VECTOR];
#pragma unroll
      for (int peer = 0; peer < PEERS; ++peer)
        if (is_there(peer)) {
          const Accumulator* partial = slot(work().tile, first + peer);
#pragma unroll
          for (int i = 0; i < VECTORS; ++i) load(partial, i, x[peer][i]);
        }
#pragma unroll
      for (int peer = 0; peer < PEERS; ++peer)
        if (is_there(peer))
#pragma unroll
          for (int i = 0; i < VECTORS; ++i) add(i, x[peer][i]);
    }
  }
  return true;
}

}  // namespace jitgemm::device
