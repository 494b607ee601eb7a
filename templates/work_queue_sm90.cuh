// Tiles of groups take as long as they have rows, so every ctas-th of them would be more work for one CTA than for
// another: 12 % for the one with most, of twelve tiles whose rows vary by a third. Here a CTA's producer takes the next
// tile from a counter in memory when it has loaded one, and hands its number to the consumers through a ring in shared
// memory. Which CTA computes a tile changes none of its bits.
//
// barrier         who arrives                                     how many       who waits
// fetched full    lane 0 of the producer's warp                   1              consumers
// fetched empty   a lane of each consumer warp that has read it   4 a consumer   lane 0 of the producer's warp
#pragma once
#include "groups.cuh"
#include "ide_sm90.cuh"
#include "layout_sm90.cuh"
#include "ptx/barrier.cuh"
#include "ptx/global.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/warp.cuh"

namespace jitgemm::device {

/// A warp's end of the ring. Both ends take all items, in the same order; all lanes of a warp call each together.
class WorkQueue {
  const SharedMemory& smem;
  int slot = 0;
  u32 phase = 0;

  __device__ __forceinline__ u32 number() const { return smem.fetched(slot); }
  __device__ __forceinline__ u32 full() const { return smem.fetched(slot) + 8; }
  __device__ __forceinline__ u32 empty() const { return smem.fetched(slot) + 16; }
  __device__ __forceinline__ void advance() {
    if (++slot == sm90::queue_slots) {
      slot = 0;
      phase ^= 1;
    }
  }

 public:
  __device__ __forceinline__ WorkQueue(const SharedMemory& its_smem) : smem(its_smem) {}

  /// One thread, before any other uses the ring.
  static __device__ __forceinline__ void initialise(const SharedMemory& smem) {
    for (WorkQueue queue(smem); queue.phase == 0; queue.advance()) {
      ptx::mbarrier_init(queue.full(), 1);
      ptx::mbarrier_init(queue.empty(), CONSUMERS * 4);
    }
  }

  __device__ __forceinline__ void put(int tile) {
    if (ThisWarp::lanes() == 0) {
      ptx::mbarrier_wait_parity(empty(), phase ^ 1);  // passes in the first pass
      ptx::st_shared_u32(number(), u32(tile));
      ptx::mbarrier_arrive(full());
    }
    advance();
  }
  __device__ __forceinline__ int take() {
    ptx::mbarrier_wait_parity(full(), phase);
    const u32 tile = ptx::ld_shared_u32(number());
    ptx::warp_sync();  // the lane that arrives speaks for all
    if (ThisWarp::lanes() == 0) ptx::mbarrier_arrive(empty());
    advance();
    return int(ptx::warp_uniform(tile));
  }
};

/// The producer's work, one tile after the other, which it tells the consumers.
template <typename ItsScheduler>
class FetchedWork {
  ItsScheduler& scheduler;
  const Arguments& args;
  WorkQueue queue;
  int tile;

  __device__ __forceinline__ bool take(Work& work) {
    queue.put(tile);
    if (scheduler.at(tile, work)) return true;
    // Each tile was followed by one fetch. Who had the last one leaves the counter as it was.
    const int fetches_before = tile - args.decomposition.ctas;
    if (fetches_before == scheduler.scan.tiles() - 1 && ThisWarp::lanes() == 0) ptx::st_global(args.counters, 0u);
    return false;
  }

 public:
  __device__ __forceinline__ FetchedWork(ItsScheduler& its_scheduler, const Arguments& arguments,
                                         const SharedMemory& smem)
      : scheduler(its_scheduler), args(arguments), queue(smem), tile(its_scheduler.cta) {}

  __device__ __forceinline__ bool first(Work& work) {
    scheduler.prefetch();
    return take(work);
  }
  __device__ __forceinline__ bool next(Work& work) {
    u32 before = 0;
    if (ThisWarp::lanes() == 0) before = ptx::atom_inc_acq_rel_gpu(args.counters, 0xffffffffu);
    tile = args.decomposition.ctas + int(ptx::shuffle(before, 0));
    return take(work);
  }
};

/// A consumer's, as the producer says.
template <typename ItsScheduler>
class ToldWork {
  ItsScheduler& scheduler;
  WorkQueue queue;

 public:
  __device__ __forceinline__ ToldWork(ItsScheduler& its_scheduler, const SharedMemory& smem)
      : scheduler(its_scheduler), queue(smem) {}
  __device__ __forceinline__ bool first(Work& work) {
    scheduler.prefetch();
    return next(work);
  }
  __device__ __forceinline__ bool next(Work& work) { return scheduler.at(queue.take(), work); }
};

/// The work of a CTA as one of its warps gets it: from FetchedWork or ToldWork, or where nothing is fetched from the
/// scheduler itself.
template <bool ANY>
struct WorkOf {
  template <typename ItsScheduler>
  static __device__ __forceinline__ ItsScheduler& producer(ItsScheduler& scheduler, const Arguments&,
                                                           const SharedMemory&) {
    return scheduler;
  }
  template <typename ItsScheduler>
  static __device__ __forceinline__ ItsScheduler& consumer(ItsScheduler& scheduler, const SharedMemory&) {
    return scheduler;
  }
};
template <>
struct WorkOf<true> {
  template <typename ItsScheduler>
  static __device__ __forceinline__ FetchedWork<ItsScheduler> producer(ItsScheduler& scheduler, const Arguments& args,
                                                                       const SharedMemory& smem) {
    return {scheduler, args, smem};
  }
  template <typename ItsScheduler>
  static __device__ __forceinline__ ToldWork<ItsScheduler> consumer(ItsScheduler& scheduler, const SharedMemory& smem) {
    return {scheduler, smem};
  }
};

}  // namespace jitgemm::device
