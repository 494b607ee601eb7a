// A product that several ranks compute together, in the Hopper loop. Where A is gathered, copy engines bring the other
// ranks' shards while the producer loads those that are there. Where D is scattered, a tile of another rank's shard is
// stored in memory of this rank, from where a warp of the producer's warpgroup takes it to the other rank while the
// next tile is multiplied; a tile of the own shard waits for what the others send and adds it in the order of ranks, so
// that the bits of a sum do not depend on who came first. Stores to another rank by the consumers themselves would stop
// them: all CTAs store at the same time, 11 MB of tiles take 32 us at 350 GB/s, and while its stage is full a consumer
// does not multiply. Copy engines that wait for tiles (cuStreamWaitValue32) were up to 10 ms late.
//
// Every wait is for a flag that has the epoch of its call, and for something that happens whatever this kernel does:
// for a copy of A, or for tiles that another rank's kernel sends before it waits for any (shard_at(); all of its CTAs
// are resident together). Waits end in time: Patience.
#pragma once
#include "arguments.cuh"
#include "epilogue.cuh"
#include "groups.cuh"
#include "ide_sm90.cuh"
#include "layout_sm90.cuh"
#include "memory.cuh"
#include "ptx/barrier.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/system.cuh"
#include "ptx/tma.cuh"
#include "shard_arguments.cuh"
#include "store_sm90.cuh"
#include "wait_for_rank.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

static_assert(!SCATTERS_D || (TMA_STORE && !SWAP_AB && CLUSTER_K == 1 && PARTITION == Partition::whole_tiles));

/// A as the producer loads it.
struct WholeA {
  const Arguments& args;

  __device__ __forceinline__ const TensorMap* map(int) const { return &args.map_a; }
  __device__ __forceinline__ int matrix(int batch) const { return BATCHED && args.stride_a != 0 ? batch : 0; }
};

/// Waits for the shard of a tile when it comes to the first one of it.
class GatheredA {
  const ShardArguments& args;
  u32 there;  // bits of ranks

 public:
  __device__ __forceinline__ explicit GatheredA(const Arguments& arguments)
      : args(shard_arguments(arguments)), there(1u << args.rank) {}

  __device__ __forceinline__ const TensorMap* map(int rank) {
    if (!(there >> rank & 1)) {
      wait_for_rank(args.patience, args.arrived + rank, ptx::ld_global<u32>(args.epoch), rank);
      ptx::fence_proxy_async_global();  // TMA reads what was acquired
      there |= 1u << rank;
    }
    return rank == args.rank ? &args.maps[0] : &args.map_a;
  }
  __device__ __forceinline__ int matrix(int rank) const { return rank == args.rank ? 0 : rank; }
};

template <bool>
struct ShardsOf {
  using Source = WholeA;
};
template <>
struct ShardsOf<true> {
  using Source = GatheredA;
};
using SourceOfA = typename ShardsOf<GATHERS_A>::Source;

/// What another rank's shard of D gets from here: the sums as they are.
struct Sums : Epilogue {
  static constexpr bool FINISHES = false;

  __device__ __forceinline__ const TensorMap* map_of_d() const { return &shard_arguments(args).maps[tile.batch]; }
  template <bool INTERIOR, typename Staged = NotStaged>
  __device__ __forceinline__ void finish(int, int, const NeighbourFactors&, ElementCompute&, ElementCompute&,
                                         ElementCompute = 0, ElementCompute = 0, const Staged& = {}) const {}
};

/// All of D is this rank's.
struct WholeD {
  __device__ __forceinline__ WholeD(const Arguments&, const SharedMemory&, u32, u32) {}
  __device__ __forceinline__ bool is_own(const WorkTile&) const { return true; }
  __device__ __forceinline__ void tell() {}
  template <typename Store>
  __device__ __forceinline__ bool sends(const Scales&, const WorkTile&, const Store&) {
    return false;
  }
  __device__ __forceinline__ void add(const WorkTile&, int, int, const Accumulator (&)[COUNT]) const {}
};

/// Of a shard's flags, the one of a consumer's part of a tile.
__device__ __forceinline__ int place_of(const ShardArguments& args, const WorkTile& tile, u32 consumer) {
  const int across = args.decomposition.tiles_n * CLUSTER_N;
  return place_at(tile.row / BLOCK_M, tile.column / BLOCK_N, across, CONSUMERS, int(PING_PONG ? 0 : consumer));
}

/// What an element of what travels is added as.
template <typename>
struct Summand {
  using type = ElementCompute;
};

/// One consumer's tiles of all shards. T is ElementD: as a template, it need not compile for types that do not travel.
template <typename T>
class ScatteredD {
  const ShardArguments& args;
  const SharedMemory& smem;
  u32 consumer, thread;
  bool has_stored = false;  // a tile, which the mover does not know of yet
  u32 told = 0;

 public:
  __device__ __forceinline__ ScatteredD(const Arguments& arguments, const SharedMemory& its_smem, u32 its_consumer,
                                        u32 its_thread)
      : args(shard_arguments(arguments)), smem(its_smem), consumer(its_consumer), thread(its_thread) {}

  __device__ __forceinline__ bool is_own(const WorkTile& tile) const { return tile.batch == args.rank; }

  /// Stores a tile of another rank's, as `store` does with Sums.
  template <typename Store>
  __device__ __forceinline__ bool sends(const Scales& scales, const WorkTile& tile, const Store& store) {
    if (is_own(tile)) return false;
    store(Sums{{args, scales, tile}});
    has_stored = true;
    return true;
  }
  /// Tells the mover of that tile, late enough that it is there: some k-blocks into the next one.
  __device__ __forceinline__ void tell() {
    if (!has_stored) return;
    has_stored = false;
    const u32 tile = told++;
    if (thread != 0) return;
    ptx::tma_store_wait_group<0>();
    ptx::fence_proxy_async_global();  // the mover reads by the other proxy what TMA has stored
    ptx::mbarrier_wait_parity(smem.taken(consumer), tile % 2 ^ 1);  // the first passes
    ptx::mbarrier_arrive(smem.stored(consumer));
  }

  /// Adds to this rank's own sums of the tile, from (row, column) on, those of the others in the order of ranks.
  __device__ __forceinline__ void add(const WorkTile& tile, int row, int column, Accumulator (&sums)[COUNT]) const {
    if (!is_own(tile)) return;
    if (int(thread) < args.ranks && int(thread) != args.rank)
      wait_for_rank(args.patience, args.arrived + flag_at(int(thread), args.places, place_of(args, tile, consumer)),
                    ptx::ld_global<u32>(args.epoch), int(thread));
    ptx::bar_sync(1 + consumer, 128);  // one thread's acquisition is all others'
    const TileFragment fragment(int(thread / 32), int(thread % 32));
#pragma unroll 1
    for (int rank = 0; rank < args.ranks; ++rank)
      if (rank != args.rank) add_from(rank, tile, fragment, row, column, sums);
  }

 private:
  __device__ __forceinline__ void add_from(int rank, const WorkTile& tile, const TileFragment& fragment, int row,
                                           int column, Accumulator (&sums)[COUNT]) const {
    const T* const received = static_cast<const T*>(args.received) + rank * args.stride_staged + column;
#pragma unroll
    for (int mma = 0; mma < MMAS_M; ++mma)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int its_row = row + fragment.row_of(mma, half);
        if (its_row >= tile.row_end) continue;
        const T* const from = received + its_row * args.ld_staged;
#pragma unroll
        for (int i = 0; i < TileFragment::PAIRS; ++i) {
          const int at = fragment.column_of(i);
          if (column + at >= tile.column_end) continue;
          typename Summand<T>::type x, y;
          load_pair(from + at, x, y);
          Accumulator* const pair = sums + TileFragment::pair(mma, half, i);
          pair[0] = ptx::add(pair[0], x);
          pair[1] = ptx::add(pair[1], y);
        }
      }
  }
};

template <bool>
struct PlaceOf {
  using Place = WholeD;
};
template <>
struct PlaceOf<true> {
  using Place = ScatteredD<ElementD>;
};
using PlaceOfD = typename PlaceOf<SCATTERS_D>::Place;

/// Copies a consumer's part of a tile to the rank that it is of, 16 bytes a lane, and says so there.
__device__ __forceinline__ void move_tile(const ShardArguments& args, const WorkTile& tile, u32 consumer, u32 lane) {
  constexpr int CHUNK = 16 / int(sizeof(ElementD)), AT_ONCE = 4;  // elements; rows
  const int first_row = tile.row + int(PING_PONG ? 0 : consumer) * CONSUMER_ROWS;
  const int rows = min_of(CONSUMER_ROWS, tile.row_end - first_row);
#pragma unroll 1
  for (int column = tile.column + int(lane) * CHUNK; column < min_of(tile.column + BLOCK_N, tile.column_end);
       column += 32 * CHUNK) {
    const i64 at = first_row * args.ld_staged + column;
    const ElementD* from = static_cast<const ElementD*>(args.sent) + tile.batch * args.stride_staged + at;
    ElementD* to = static_cast<ElementD*>(args.sent_to[tile.batch]) + args.rank * args.stride_staged + at;
#pragma unroll 1
    for (int row = 0; row < rows; row += AT_ONCE) {
      U32x4 chunks[AT_ONCE];
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i)
        if (row + i < rows) chunks[i] = ptx::ld_global<U32x4>(from + i * args.ld_staged);
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i)
        if (row + i < rows) ptx::st_global(to + i * args.ld_staged, chunks[i]);
      from += AT_ONCE * args.ld_staged;
      to += AT_ONCE * args.ld_staged;
    }
  }
  ptx::warp_sync();  // the lane that tells speaks for all
  if (lane == 0)     // once is enough
    ptx::st_release_sys(args.arrived_at[tile.batch] + flag_at(args.rank, args.places, place_of(args, tile, consumer)),
                        ptx::ld_global<u32>(args.epoch));
}

/// The warp that takes a consumer's tiles of other ranks' shards there, in the order of the consumer's work.
__device__ __forceinline__ void move(const Arguments& arguments, const SharedMemory& smem, const ClusterPlace& place,
                                     u32 consumer, u32 lane) {
  const ShardArguments& args = shard_arguments(arguments);
  Scheduler scheduler = scheduler_of(arguments, place.cluster());
  u32 item = 0, moved = 0;
  Work work;
  for (bool more = scheduler.first(work); more; more = scheduler.next(work)) {
    if (PING_PONG && item++ % 2 != consumer) continue;
    const WorkTile tile = tile_of(arguments, scheduler, work, place);
    if (tile.batch == args.rank) continue;
    ptx::mbarrier_wait_parity(smem.stored(consumer), moved++ % 2);
    ptx::warp_sync();
    if (lane == 0) ptx::mbarrier_arrive(smem.taken(consumer));
    move_tile(args, tile, consumer, lane);
  }
}

}  // namespace jitgemm::device
