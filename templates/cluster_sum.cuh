// How a tile whose k-blocks are dealt out to the blocks of a cluster becomes one: each block takes a slice of the
// columns, and the others push their partial sums of it into its shared memory. Added in k order, so that no bit
// depends on who is first.
#pragma once
#include "ide.cuh"
#include "layout_sm90.cuh"
#include "ptx/cluster.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "store_sm90.cuh"

namespace jitgemm::device {

/// Called by all consumers of the cluster, once. On return `own` has a thread's part of the block's slice, whose
/// columns begin at place.k * STORE_COLUMNS.
struct ClusterSum {
  static constexpr int VECTORS = STORE_COUNT / 4;                                   // a block of the fragment each
  static constexpr int BYTES = (CLUSTER_K - 1) * CONSUMERS * VECTORS * (128 * 16);  // that a block gets

  const SharedMemory& smem;
  const ClusterPlace& place;

  __device__ __forceinline__ u32 slot(int from, u32 consumer, u32 thread, int vector) const {
    return smem.base + (((from * CONSUMERS + consumer) * VECTORS + vector) * 128 + thread) * 16;
  }

  /// One thread, before the cluster meets.
  static __device__ __forceinline__ void initialise(const SharedMemory& smem) {
    ptx::mbarrier_init(smem.peers_done(), CLUSTER_K * CONSUMERS * 4);  // a lane of each warp of each peer
    ptx::mbarrier_init(smem.sums_there(), 1);
    ptx::mbarrier_arrive_expect_tx(smem.sums_there(), BYTES);
  }

  __device__ __forceinline__ void add(u32 consumer, u32 thread, const Accumulator (&accumulators)[COUNT],
                                      Accumulator (&own)[STORE_COUNT]) const {
    // The partial sums take the place of stages. A lane of each warp tells each peer that the warp has read its own.
    // Room of their own would not save time: all but the last to arrive have done so long before (NOTES.md, 53).
    const u32 lane = thread % 32;
    if (lane < CLUSTER_K)
      ptx::mbarrier_arrive_cluster(ptx::map_to_rank(smem.peers_done(), place.rank_of(place.m, place.n, int(lane))));
    ptx::mbarrier_wait_parity(smem.peers_done(), 0);
    Accumulator kept[STORE_COUNT];
#pragma unroll
    for (int slice = 0; slice < CLUSTER_K; ++slice) {
      const bool is_own = slice == place.k;
      const u32 owner = place.rank_of(place.m, place.n, slice);
      const u32 to = ptx::map_to_rank(slot(place.k, consumer, thread, 0), owner);
      const u32 its_sums_there = ptx::map_to_rank(smem.sums_there(), owner);
#pragma unroll
      for (int vector = 0; vector < VECTORS; ++vector) {
        constexpr int ACROSS = StoreFragment::BLOCKS_ACROSS;
        const int first = TileFragment::block(vector / ACROSS, slice * ACROSS + vector % ACROSS);
        Accumulator x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = accumulators[first + i];
        if (is_own)
#pragma unroll
          for (int i = 0; i < 4; ++i) kept[vector * 4 + i] = x[i];
        else
          ptx::st_async_cluster(to + vector * (128 * 16), x, its_sums_there);
      }
    }
    ptx::mbarrier_wait_parity(smem.sums_there(), 0);
#pragma unroll
    for (int i = 0; i < STORE_COUNT; ++i) own[i] = 0;
#pragma unroll 1
    for (int from = 0; from < CLUSTER_K; ++from)
#pragma unroll
      for (int vector = 0; vector < VECTORS; ++vector) {
        Accumulator x[4];
        if (from == place.k)
#pragma unroll
          for (int i = 0; i < 4; ++i) x[i] = kept[vector * 4 + i];
        else
          ptx::ld_shared_v4(slot(from, consumer, thread, vector), x);
#pragma unroll
        for (int i = 0; i < 4; ++i) own[vector * 4 + i] = ptx::add(own[vector * 4 + i], x[i]);
      }
  }
};

}  // namespace jitgemm::device
