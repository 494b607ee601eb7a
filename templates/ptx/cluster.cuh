// sm_90: thread blocks of a cluster, their barrier, and each other's (distributed) shared memory.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

/// This block's place in its cluster, 0..size - 1.
__device__ __forceinline__ u32 cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// All threads of the cluster that have not ended arrive, then wait. Nothing is seen after it beyond barriers before a
/// fence_mbarrier_init: an arrival with a release would wait until all of the thread's stores have reached the L2.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

/// The cluster's address of what lies at `address` in the shared memory of block `rank`.
__device__ __forceinline__ u32 map_to_rank(u32 address, u32 rank) {
  u32 mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

/// mbarrier_arrive at another block's barrier, given by map_to_rank. Its release, and the acquire of
/// mbarrier_wait_parity, have PTX's default scope, the block, where the model asks for the cluster's. What passes over
/// these barriers from block to block is that a stage has been read, by wgmma whose registers have arrived, or a
/// group's tile, whose words have, so that nothing is left to become visible; CUTLASS's ClusterBarrier relies on the
/// same. What blocks write for each other goes by st_async_cluster.
__device__ __forceinline__ void mbarrier_arrive_cluster(u32 mapped) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(mapped) : "memory");
}

/// mbarrier_arrive_expect_tx at the barrier of any block of the cluster, given by map_to_rank: of stores that
/// st_async_cluster makes.
__device__ __forceinline__ void mbarrier_arrive_expect_tx_cluster(u32 mapped, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(mapped), "r"(bytes)
               : "memory");
}

/// Stores to the shared memory of any block of the cluster, and completes as many bytes of a barrier of the same block,
/// whose waiters see what was stored. Both addresses are given by map_to_rank.
__device__ __forceinline__ void st_async_cluster(u32 mapped, const float (&x)[4], u32 mapped_barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(mapped),
      "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "r"(mapped_barrier)
      : "memory");
}
__device__ __forceinline__ void st_async_cluster(u32 mapped, const int (&x)[4], u32 mapped_barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.s32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(mapped),
      "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(mapped_barrier)
      : "memory");
}

}  // namespace jitgemm::device::ptx
#endif
