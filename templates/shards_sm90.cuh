// A product that several ranks compute together, in the Hopper loop. Where A is gathered, copy engines bring the other
// ranks' shards while the producer loads those that are there. Where D is scattered, tiles of other ranks' shards are
// stored in memory of this rank, from where copy engines take them, chunk by chunk, when a counter says that all of one
// are there; a tile of the own shard waits for what the others send and adds it in the order of ranks, so that the bits
// of a sum do not depend on who came first. Stores to another rank's memory by the kernel itself would stop it: all CTAs
// store at the same time, 11 MB of tiles take 32 us at 350 GB/s, and while its stage is full a consumer does not
// multiply.
//
// Every wait is for a flag that has the epoch of its call, and for something that happens whatever this kernel does:
// for a copy of A, or of tiles that another rank's kernel stores before it waits for any (shard_at(); all of its CTAs
// are resident together). Waits end in time: Patience.
#pragma once
#include "arguments.cuh"
#include "epilogue.cuh"
#include "groups.cuh"
#include "ide_sm90.cuh"
#include "layout_sm90.cuh"
#include "memory.cuh"
#include "ptx/barrier.cuh"
#include "ptx/math.cuh"
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
  __device__ __forceinline__ void finish(int, int, const Factors (&)[2], ElementCompute&, ElementCompute&,
                                         ElementCompute = 0, ElementCompute = 0, const Staged& = {}) const {}
};

/// All of D is this rank's.
struct WholeD {
  __device__ __forceinline__ WholeD(const Arguments&, u32, u32) {}
  __device__ __forceinline__ bool is_own(const WorkTile&) const { return true; }
  __device__ __forceinline__ void tell() {}
  template <typename Store>
  __device__ __forceinline__ bool sends(const Scales&, const WorkTile&, const Store&) {
    return false;
  }
  __device__ __forceinline__ void add(const WorkTile&, int, int, const Accumulator (&)[COUNT]) const {}
};

/// One consumer's tiles of all shards.
class ScatteredD {
  const ShardArguments& args;
  u32 consumer, thread;
  u32* counter = nullptr;  // of the tile that was stored last

 public:
  __device__ __forceinline__ ScatteredD(const Arguments& arguments, u32 its_consumer, u32 its_thread)
      : args(shard_arguments(arguments)), consumer(its_consumer), thread(its_thread) {}

  __device__ __forceinline__ bool is_own(const WorkTile& tile) const { return tile.batch == args.rank; }

  /// Stores a tile of another rank's, as `store` does with Sums.
  template <typename Store>
  __device__ __forceinline__ bool sends(const Scales& scales, const WorkTile& tile, const Store& store) {
    if (is_own(tile)) return false;
    store(Sums{{args, scales, tile}});
    counter = args.stored + tile.batch * args.chunks + tile.row / args.chunk_rows;
    return true;
  }
  /// Counts that tile, late enough that it is there: when the next one's products are done.
  __device__ __forceinline__ void tell() {
    if (thread == 0 && counter) {
      ptx::tma_store_wait_group<0>();
      ptx::fence_proxy_async_global();  // the counter is of the other proxy
      ptx::red_inc_release_sys(counter);
    }
    counter = nullptr;
  }

  /// Adds to this rank's own sums of the tile, from (row, column) on, those of the others in the order of ranks.
  __device__ __forceinline__ void add(const WorkTile& tile, int row, int column, Accumulator (&sums)[COUNT]) const {
    if (int(thread) < args.ranks && int(thread) != args.rank)
      wait_for_rank(args.patience, args.arrived + int(thread) * args.chunks + tile.row / args.chunk_rows,
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
    const ElementD* const received = static_cast<const ElementD*>(args.received) + rank * args.stride_received + column;
#pragma unroll
    for (int mma = 0; mma < MMAS_M; ++mma)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int its_row = row + fragment.row_of(mma, half);
        if (its_row >= tile.row_end) continue;
        const ElementD* const from = received + its_row * args.ld_received;
#pragma unroll
        for (int i = 0; i < TileFragment::PAIRS; ++i) {
          const int at = fragment.column_of(i);
          if (column + at >= tile.column_end) continue;
          float x, y;
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
  using Place = ScatteredD;
};
using PlaceOfD = typename PlaceOf<SCATTERS_D>::Place;

}  // namespace jitgemm::device
