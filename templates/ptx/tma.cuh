// sm_90: copies of whole boxes between global and shared memory by one thread, out-of-bounds elements read as zero and
// not written. Boxes lie in shared memory with the swizzle of their width: rows of 128 bytes with 16-byte chunk c of
// row r at chunk c ^ r % 8, of 64 bytes at c ^ r / 2 % 4, of 32 bytes at c ^ r / 4 % 2, of 16 bytes none; base
// 1024-byte aligned.
#pragma once
#include "../arguments.cuh"
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

__device__ __forceinline__ void prefetch_tensormap(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// `inner` and `outer` are the box's first element, `batch` its matrix; may lie out of bounds. Completes on the
/// mbarrier with the box's bytes.
__device__ __forceinline__ void tma_load_3d(u32 shared, const TensorMap* map, u32 barrier, int inner, int outer,
                                            int batch) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(shared),
      "l"(map), "r"(barrier), "r"(inner), "r"(outer), "r"(batch)
      : "memory");
}

/// The same box, to the same place in the shared memory of each block of the cluster whose bit is set, completing on
/// the mbarrier at the same place there.
__device__ __forceinline__ void tma_load_multicast_3d(u32 shared, const TensorMap* map, u32 barrier, int inner,
                                                      int outer, int batch, u16 blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, "
      "%4, "
      "%5}], [%2], %6;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(inner), "r"(outer), "r"(batch), "h"(blocks)
      : "memory");
}

/// The same of rows that are pairs: a map of five dimensions, of which the second to fourth are rows of one kind, the
/// two kinds, and groups of such pairs.
__device__ __forceinline__ void tma_load_5d(u32 shared, const TensorMap* map, u32 barrier, int inner, int outer,
                                            int pair, int group, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
      "[%2];" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(inner), "r"(outer), "r"(pair), "r"(group), "r"(batch)
      : "memory");
}
__device__ __forceinline__ void tma_load_multicast_5d(u32 shared, const TensorMap* map, u32 barrier, int inner,
                                                      int outer, int pair, int group, int batch, u16 blocks) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, "
      "%4, %5, %6, %7}], [%2], %8;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(inner), "r"(outer), "r"(pair), "r"(group), "r"(batch), "h"(blocks)
      : "memory");
}

/// Copies a row of bytes as it is, a multiple of 16 from and to a multiple of 16. Completes on the mbarrier with them.
__device__ __forceinline__ void bulk_load(u32 shared, const void* global, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(barrier)
               : "memory");
}

/// The matrix's rows end at a multiple of 16 bytes.
__device__ __forceinline__ void tma_store_3d(const TensorMap* map, u32 shared, int inner, int outer, int batch) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(shared), "r"(inner), "r"(outer), "r"(batch)
               : "memory");
}
__device__ __forceinline__ void tma_store_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// Waits until at most PENDING of this thread's groups of stores still read shared memory.
template <int PENDING>
__device__ __forceinline__ void tma_store_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

/// The same, but what they write is there, for this thread.
template <int PENDING>
__device__ __forceinline__ void tma_store_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory");
}

/// Orders this thread's ordinary accesses of shared memory before later ones by TMA and wgmma.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace jitgemm::device::ptx
#endif
