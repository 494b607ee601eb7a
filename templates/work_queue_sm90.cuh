// Tiles of groups take as long as they have rows, or their group has of k, so every ctas-th of them would be more work
// for one CTA than for another: 12 % for the one with most, of twelve tiles whose rows vary by a third. Here a CTA's
// producer, of a cluster that of its first block, takes the number of the next tile from a counter in memory before it
// has loaded all of one, finds the tile, and tells it to all others who work on it, through a ring in their shared
// memory. Which CTA computes a tile changes none of its bits.
//
// barrier         who arrives                                       how many             who waits
// fetched full    the first block's producer, a lane for each       1 (a cluster: and    consumers, and the other
//                 block                                             the tile's bytes)    blocks' producers
// fetched empty   of the first block: a lane of each warp of those  4 a consumer, and 1  the first block's producer
//                 who have read the tile                            a producer
#pragma once
#include "groups.cuh"
#include "ide_sm90.cuh"
#include "layout_sm90.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/global.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/warp.cuh"

namespace jitgemm::device {

static_assert(FETCHES == GROUPED, "groups' tiles are fetched, and no others");

/// A warp's end of the ring. Both ends take all items, in the same order; all lanes of a warp call each together.
class WorkQueue {
  static_assert(sizeof(ToldTile) + 2 * 8 == sm90::queue_slot_bytes, "a slot has a tile and two barriers");
  const SharedMemory& smem;
  int slot = 0;
  u32 phase = 0;

  __device__ __forceinline__ u32 entry() const { return smem.fetched(slot); }
  __device__ __forceinline__ u32 full() const { return smem.fetched(slot) + 16; }
  __device__ __forceinline__ u32 empty() const { return smem.fetched(slot) + 24; }
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
      ptx::mbarrier_init(queue.empty(), CLUSTER * CONSUMERS * 4 + CLUSTER - 1);
    }
  }

  /// The first block's producer.
  __device__ __forceinline__ void put(const ToldTile& tile) {
    ptx::mbarrier_wait_parity(empty(), phase ^ 1);  // passes in the first pass
    ptx::warp_sync();  // none is left behind, whom the next phase would find waiting for this one
    const u32 lane = u32(ThisWarp::lanes());
    if constexpr (CLUSTER > 1) {
      if (lane < CLUSTER) {
        const u32 its_full = ptx::map_to_rank(full(), lane);
        ptx::mbarrier_arrive_expect_tx_cluster(its_full, sizeof tile.words);
        ptx::st_async_cluster(ptx::map_to_rank(entry(), lane), tile.words, its_full);
      }
    } else if (lane == 0) {
      ptx::st_shared_v4(entry(), {u32(tile.words[0]), u32(tile.words[1]), u32(tile.words[2]), u32(tile.words[3])});
      ptx::mbarrier_arrive(full());
    }
    advance();
  }
  __device__ __forceinline__ ToldTile take() {
    ptx::mbarrier_wait_parity(full(), phase);
    int words[4];
    ptx::ld_shared_v4(entry(), words);
    // In registers, before the lane that arrives speaks for all.
    const ToldTile tile{{ThisWarp::uniform(words[0]), ThisWarp::uniform(words[1]), ThisWarp::uniform(words[2]),
                         ThisWarp::uniform(words[3])}};
    ptx::warp_sync();
    if (ThisWarp::lanes() == 0) {
      if constexpr (CLUSTER > 1)
        ptx::mbarrier_arrive_cluster(ptx::map_to_rank(empty(), 0));
      else
        ptx::mbarrier_arrive(empty());
    }
    advance();
    return tile;
  }
  /// Until all have taken what was put.
  __device__ __forceinline__ void await_takers() {
    for (int i = 0; i < sm90::queue_slots; ++i) {
      ptx::mbarrier_wait_parity(empty(), phase ^ 1);
      advance();
    }
  }
};

/// A producer's work, one tile after the other: what the first block's fetches, and tells the others. The scan, which
/// is long, stands in the kernel once: for (begin(); find(work); advance()).
template <typename ItsScheduler>
class FetchedWork {
  ItsScheduler& scheduler;
  const Arguments& args;
  WorkQueue queue;
  bool fetches;
  u32 loader;  // the lane that loads, and fetches
  int tile;
  u32 before = 0;  // fetches before the loader's last one

 public:
  __device__ __forceinline__ FetchedWork(ItsScheduler& its_scheduler, const Arguments& arguments,
                                         const SharedMemory& smem, const ClusterPlace& place, bool loads)
      : scheduler(its_scheduler),
        args(arguments),
        queue(smem),
        fetches(CLUSTER == 1 || place.rank == 0),
        loader(ThisWarp::lowest_bit(ThisWarp::ballot(loads))),
        tile(its_scheduler.cta) {}

  __device__ __forceinline__ void begin() { prefetch_groups(args); }
  __device__ __forceinline__ bool find(Work& work) {
    if (!fetches) return scheduler.take(queue.take(), work);
    const bool exists = scheduler.at(tile, work);
    queue.put(scheduler.told());
    if (exists) return true;
    // Each tile comes with one fetch. Who had the last one leaves the counter as it was.
    const int fetches_before = tile - args.decomposition.ctas;
    if (fetches_before == scheduler.tiles() - 1 && ThisWarp::lanes() == 0) ptx::atom_inc_relaxed_gpu(args.counters, 0);
    if constexpr (CLUSTER > 1) queue.await_takers();  // other blocks arrive in this one's memory
    return false;
  }
  /// The loader asks for the next tile, while it has some of this one left to load: the answer takes longer than the
  /// consumers have k-blocks for, where a tile is bound by what the SM takes in.
  __device__ __forceinline__ void fetch() {
    if (fetches) before = ptx::atom_inc_relaxed_gpu(args.counters, 0xffffffffu);
  }
  __device__ __forceinline__ void advance() {
    if (fetches) tile = args.decomposition.ctas + int(ptx::shuffle(before, loader));
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
  __device__ __forceinline__ bool first(Work& work) { return next(work); }
  __device__ __forceinline__ bool next(Work& work) { return scheduler.take(queue.take(), work); }
};

/// What a consumer gets its work from: the scheduler itself, where no producer fetches any.
template <typename ItsScheduler>
__device__ __forceinline__ decltype(auto) work_of_consumer(ItsScheduler& scheduler, const SharedMemory& smem) {
  if constexpr (FETCHES)
    return ToldWork<ItsScheduler>(scheduler, smem);
  else
    return (scheduler);
}

}  // namespace jitgemm::device
