// A product that several ranks compute together, in the Hopper loop. Where A is gathered, copy engines bring the other
// ranks' shards while the producer loads those that are there. Where D is scattered, a tile of another rank's shard
// goes to that rank's memory by TMA, a tile of its own waits for what the others send and adds it up in the order of
// ranks, so that the bits of a sum do not depend on who came first.
//
// Every wait is for a flag that has the epoch of its call, and for something that happens whatever this kernel does:
// for a copy engine, or for a tile that another rank's kernel stores before it waits for any (shard_at(); all of its
// CTAs are resident together). Waits end in time: Patience.
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

/// What another rank's tile of D gets from here: the sums as they are.
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
  u32* signal = nullptr;  // of the tile that was stored last

  __device__ __forceinline__ int place_of(const WorkTile& tile) const {
    const int across = args.decomposition.tiles_n * CLUSTER_N;
    return (tile.row / BLOCK_M * across + tile.column / BLOCK_N) * CONSUMERS + int(PING_PONG ? 0 : consumer);
  }

 public:
  __device__ __forceinline__ ScatteredD(const Arguments& arguments, u32 its_consumer, u32 its_thread)
      : args(shard_arguments(arguments)), consumer(its_consumer), thread(its_thread) {}

  __device__ __forceinline__ bool is_own(const WorkTile& tile) const { return tile.batch == args.rank; }

  /// Stores a tile of another rank's, as `store` does with Sums.
  template <typename Store>
  __device__ __forceinline__ bool sends(const Scales& scales, const WorkTile& tile, const Store& store) {
    if (is_own(tile)) return false;
    store(Sums{{args, scales, tile}});
    signal = args.arrived_at[tile.batch] + args.rank * args.places + place_of(tile);
    return true;
  }
  /// Tells that rank that the tile is there, late enough that it is: when the next one's products are done.
  __device__ __forceinline__ void tell() {
    if (thread == 0 && signal) {
      ptx::tma_store_wait_group<0>();
      ptx::fence_proxy_async_global();  // the flag is stored by the other proxy
      ptx::st_release_sys(signal, ptx::ld_global<u32>(args.epoch));
    }
    signal = nullptr;
  }

  /// Adds what the other ranks have of the tile from (row, column) on, in the order of ranks.
  __device__ __forceinline__ void add(const WorkTile& tile, int row, int column, Accumulator (&sums)[COUNT]) const {
    if (int(thread) < args.ranks && int(thread) != args.rank)
      wait_for_rank(args.patience, args.arrived + int(thread) * args.places + place_of(tile),
                    ptx::ld_global<u32>(args.epoch), int(thread));
    ptx::bar_sync(1 + consumer, 128);  // one thread's acquisition is all others'
    const TileFragment fragment(int(thread / 32), int(thread % 32));
    constexpr int TOGETHER = 8;  // pairs whose loads are on their way at once
#pragma unroll
    for (int mma = 0; mma < MMAS_M; ++mma)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int first = 0; first < TileFragment::PAIRS; first += TOGETHER)
          add_pairs<TOGETHER>(tile, fragment, row, column, mma, half, first, sums);
  }

 private:
  template <int TOGETHER>
  __device__ __forceinline__ void add_pairs(const WorkTile& tile, const TileFragment& fragment, int row, int column,
                                            int mma, int half, int first, Accumulator (&sums)[COUNT]) const {
    const int its_row = row + fragment.row_of(mma, half);
    float own[TOGETHER][2], sum[TOGETHER][2] = {};
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i)
      if (first + i < TileFragment::PAIRS) {
        own[i][0] = sums[TileFragment::pair(mma, half, first + i)];
        own[i][1] = sums[TileFragment::pair(mma, half, first + i) + 1];
      }
#pragma unroll 1
    for (int rank = 0; rank < args.ranks; ++rank) {
      const ElementD* const from = static_cast<const ElementD*>(args.received) + rank * args.stride_received +
                                   its_row * args.ld_received + column;
      float x[TOGETHER][2];
#pragma unroll
      for (int i = 0; i < TOGETHER; ++i) {
        if (first + i >= TileFragment::PAIRS) continue;
        x[i][0] = own[i][0];
        x[i][1] = own[i][1];
        const int at = fragment.column_of(first + i);
        if (rank != args.rank && its_row < tile.row_end && column + at < tile.column_end)
          load_pair(from + at, x[i][0], x[i][1]);
      }
#pragma unroll
      for (int i = 0; i < TOGETHER; ++i)
        for (int j = 0; j < 2; ++j)
          if (first + i < TileFragment::PAIRS) sum[i][j] = rank == 0 ? x[i][j] : ptx::add(sum[i][j], x[i][j]);
    }
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i)
      if (first + i < TileFragment::PAIRS) {
        sums[TileFragment::pair(mma, half, first + i)] = sum[i][0];
        sums[TileFragment::pair(mma, half, first + i) + 1] = sum[i][1];
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
