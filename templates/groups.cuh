// Groups of rows that the device alone can count: the scan of group_schedule.cuh by a warp of this kernel, and the work
// that it finds in the form that main loops take all work in. A tile has rows of one group only, and ends where those
// end; what is loaded beyond is another tile's or group's, and never stored. Or groups along k: tiles are those of a
// batch, and what a tile adds up begins and ends where its group does. Or shards, which are a batch's matrices in an
// order of the rank's own.
#pragma once
#include "arguments.cuh"
#include "group_arguments.cuh"
#include "group_schedule.cuh"
#include "ide.cuh"
#include "ptx/global.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/warp.cuh"
#include "shard_arguments.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

constexpr bool GROUPED = GROUPING != Grouping::none, ALONG_K = GROUPING == Grouping::along_k;
constexpr bool GROUPS_OF_ROWS = GROUPED && !ALONG_K;
constexpr bool NARROWS = PARAMETERS.narrows, FETCHES = PARAMETERS.fetches;
static_assert(!GROUPED || PARTITION == Partition::whole_tiles, "groups are computed in whole tiles");

constexpr bool SHARDED = SHARDING != Sharding::none;
constexpr bool GATHERS_A = SHARDING == Sharding::gathered_a, SCATTERS_D = SHARDING == Sharding::scattered_d;

__device__ __forceinline__ const ShardArguments& shard_arguments(const Arguments& args) {
  return static_cast<const ShardArguments&>(args);
}
__device__ __forceinline__ const GroupArguments& group_arguments(const Arguments& args) {
  return static_cast<const GroupArguments&>(args);
}

/// A lane's part of what GroupScan asks of a warp.
struct ThisWarp {
  using Ints = int;

  static __device__ __forceinline__ int lanes() { return int(ptx::thread_index() % 32); }
  template <typename F, typename... T>
  static __device__ __forceinline__ int each(const F& f, T... x) {
    return f(x...);
  }
  static __device__ __forceinline__ u32 ballot(int x) { return ptx::ballot(x != 0); }
  static __device__ __forceinline__ int get(int x, int lane) { return int(ptx::shuffle(u32(x), u32(lane))); }
  static __device__ __forceinline__ int up(int x, int by) { return int(ptx::shuffle_up(u32(x), u32(by))); }
  static __device__ __forceinline__ int lowest_bit(u32 bits) { return ptx::lowest_bit(bits); }
  static __device__ __forceinline__ int highest_bit(u32 bits) { return ptx::highest_bit(bits); }
  /// What is the same in all lanes, so that the compiler knows it. It sees that of no loop which ends by what shuffles
  /// said, and keeps in it what TMA and wgmma are told in the lanes' registers, from where it has to be moved each
  /// time.
  static __device__ __forceinline__ int uniform(int x) { return int(ptx::warp_uniform(u32(x))); }
  static __device__ __forceinline__ int load(const int* from) { return ptx::ld_global<int>(from); }
};

/// The rows of the kernel's product, or with SWAP_AB the columns, that a cluster has of a group.
constexpr int GROUP_TILE_ROWS = SWAP_AB ? BLOCK_N * CLUSTER_N : BLOCK_M * CLUSTER_M;

/// What a tile's rows are multiples of, but for the last of a group.
constexpr int GROUP_STEP = NARROWS ? width_step : GROUP_TILE_ROWS;

/// The lines of the groups to come are on their way together.
__device__ __forceinline__ void prefetch_groups(const Arguments& args) {
  const GroupArguments& of_groups = group_arguments(args);
  const int ahead = ThisWarp::lanes() * 32;
  if (ahead < of_groups.groups.groups) ptx::prefetch_l1(of_groups.group_rows + ahead);
  if constexpr (B_BY_POINTERS) {
    if (ahead / 2 < of_groups.groups.groups)
      ptx::prefetch_l1(static_cast<const u64*>(SWAP_AB ? args.a : args.b) + ahead / 2);
  }
}

/// What a warp that has found a tile tells others of it. The first word is NONE where there is no more work.
struct ToldTile {
  static constexpr int NONE = -1;
  int words[4];
};

/// The work of one CTA as TileScheduler has it, by a scan. All lanes of a warp call it together, when the kernels
/// before have ended. Or tile by tile (work_queue_sm90.cuh): Its own at() finds a tile's work, told() and take() pass
/// it on.
template <typename Its, int TILE_ROWS, int STEP, int RASTER>
struct ScanningScheduler {
  GroupScan<GROUPING, TILE_ROWS, STEP, RASTER, ThisWarp> scan;
  const Arguments& args;
  int cta;

  __device__ __forceinline__ ScanningScheduler(const Arguments& arguments, int its_cta)
      : scan(group_arguments(arguments).groups, group_arguments(arguments).group_rows), args(arguments), cta(its_cta) {}

  __device__ __forceinline__ bool first(Work& work) {
    prefetch_groups(args);
    return self().at(cta, work);
  }
  __device__ __forceinline__ bool next(Work& work) { return self().at(work.tile + args.decomposition.ctas, work); }

 private:
  __device__ __forceinline__ Its& self() { return static_cast<Its&>(*this); }
};

/// Of groups of rows.
struct GroupScheduler : ScanningScheduler<GroupScheduler, GROUP_TILE_ROWS, GROUP_STEP, GROUP_M> {
  using ScanningScheduler::ScanningScheduler;
  GroupTile tile{};  // of the work that was found last

  __device__ __forceinline__ bool at(int index, Work& work) {
    work = {index, 0, args.decomposition.k_blocks, 1, 0};
    if (!scan.find(index, tile)) tile.group = ToldTile::NONE;
    tile = {ThisWarp::uniform(tile.group), ThisWarp::uniform(tile.row), ThisWarp::uniform(tile.row_end),
            ThisWarp::uniform(tile.across)};
    return tile.group != ToldTile::NONE;
  }
  __device__ __forceinline__ ToldTile told() const { return {{tile.group, tile.row, tile.row_end, tile.across}}; }
  __device__ __forceinline__ bool take(const ToldTile& told, Work& work) {
    work = {0, 0, args.decomposition.k_blocks, 1, 0};
    tile = {told.words[0], told.words[1], told.words[2], told.words[3]};
    return tile.group != ToldTile::NONE;
  }
  /// All there are, once there is no more.
  __device__ __forceinline__ int tiles() const { return scan.tiles(); }
};

/// What k begins at multiples of for TMA, along a row of k: 16 bytes.
constexpr int K_STEP = FETCHES && (A_K_MAJOR || B_K_MAJOR) ? 16 / int(sizeof(ElementA)) : 1;

/// Of groups along k.
struct KGroupScheduler : ScanningScheduler<KGroupScheduler, 1, 1, 0> {
  using ScanningScheduler::ScanningScheduler;
  // Of the work that was found last: a batch's tile, and elements of k, of which the first `k_before` are of the group
  // before, so that they begin at a multiple of K_STEP.
  int tile = 0, k_begin = 0, k_count = 0, k_before = 0;

  /// A group without k has one k-block, of which nothing is its own: so it is as any other's end.
  __device__ __forceinline__ bool at(int index, Work& work) {
    if (index >= tiles()) {
      scan.read_to_end();
      tile = ToldTile::NONE;
      return false;
    }
    const GroupRows its = scan.rows_of(raster(index, args.decomposition, GROUP_M).batch);
    tile = index;
    k_count = ThisWarp::uniform(args.k == 0 ? 0 : its.end - its.begin);
    k_begin = ThisWarp::uniform(its.begin);
    if constexpr (K_STEP > 1) {
      k_before = k_begin % K_STEP;
      k_begin -= k_before;
      if (k_count > 0) k_count += k_before;
    }
    work = its_work();
    return true;
  }
  __device__ __forceinline__ ToldTile told() const { return {{tile, k_begin, k_count, k_before}}; }
  __device__ __forceinline__ bool take(const ToldTile& told, Work& work) {
    tile = told.words[0], k_begin = told.words[1], k_count = told.words[2];
    if constexpr (K_STEP > 1) k_before = told.words[3];
    work = its_work();
    return tile != ToldTile::NONE;
  }
  __device__ __forceinline__ int tiles() const { return tile_count(args.decomposition); }

 private:
  __device__ __forceinline__ Work its_work() const { return {tile, 0, max_of(1, ceil_div(k_count, BLOCK_K)), 1, 0}; }
};

/// Where A and B have what is `k` elements behind a tile's first.
struct FromZero {
  __device__ __forceinline__ int at(int k) const { return k; }
};
struct FromGroup {
  int begin;
  __device__ __forceinline__ int at(int k) const { return begin + k; }
};
/// Of the work that the scheduler gave last: where its k begins, and how much it has of k.
__device__ __forceinline__ FromZero first_k(const TileScheduler<PARTITION>&) { return {}; }
__device__ __forceinline__ FromZero first_k(const GroupScheduler&) { return {}; }
__device__ __forceinline__ FromGroup first_k(const KGroupScheduler& scheduler) { return {scheduler.k_begin}; }

/// Elements of k, of which the first `before` are not the tile's.
struct TileK {
  int count, before;
};
template <typename AnyScheduler>
__device__ __forceinline__ TileK k_of_tile(const Arguments& args, const AnyScheduler&) {
  return {args.k, 0};
}
__device__ __forceinline__ TileK k_of_tile(const Arguments&, const KGroupScheduler& scheduler) {
  return {scheduler.k_count, K_STEP > 1 ? scheduler.k_before : 0};
}

/// By one thread.
__device__ __forceinline__ void count(GroupFault& fault, int group) {
  ptx::atom_inc_acq_rel_gpu(&fault.count, 0xffffffffu);
  ptx::st_global(&fault.group, u32(group));  // of two at once either will do
}

/// Counts a launch whose table has something wrong in it, when there is no more work: one thread of each block.
__device__ __forceinline__ void report(const TileScheduler<PARTITION>&) {}
template <typename OfGroups>
__device__ __forceinline__ void report(const OfGroups& scheduler) {
  const int broken = scheduler.scan.broken();
  if (broken >= 0 && ptx::block_index() == 0) count(group_arguments(scheduler.args).faults->rows, broken);
}

template <bool OF_K>
struct GroupSchedulerOf {
  using type = GroupScheduler;
};
template <>
struct GroupSchedulerOf<true> {
  using type = KGroupScheduler;
};
using AnyGroupScheduler = typename GroupSchedulerOf<ALONG_K>::type;
template <bool>
struct SchedulerOf {
  using type = TileScheduler<PARTITION>;
};
template <>
struct SchedulerOf<true> {
  using type = AnyGroupScheduler;
};
using Scheduler = typename SchedulerOf<GROUPED>::type;

/// Of a CTA, or where these compute tiles together a cluster.
__device__ __forceinline__ auto scheduler_of(const Arguments& args, int cta) {
  if constexpr (GROUPED)
    return AnyGroupScheduler(args, cta);
  else
    return TileScheduler<PARTITION>{args.decomposition, cta};
}

/// The tile of a block at its place in its cluster, of the work that the scheduler gave last.
template <typename OfBatches, typename Place>
__device__ __forceinline__ WorkTile work_tile(const Arguments& args, const OfBatches&, const Work& work,
                                              const Place& place) {
  const auto index_of = [&args](int tile) {
    if constexpr (SHARDED)
      return shard_raster(tile, args.decomposition, GROUP_M, SHARDING, shard_arguments(args).rank,
                          shard_arguments(args).ranks);
    else
      return raster(tile, args.decomposition, GROUP_M);
  };
  const TileIndex index = index_of(work.tile);
  return work_tile(args, index.m * place.blocks_m + place.m, index.n * place.blocks_n + place.n, index.batch);
}
template <typename Place>
__device__ __forceinline__ WorkTile work_tile(const Arguments& args, const GroupScheduler& scheduler, const Work&,
                                              const Place& place) {
  const GroupTile& tile = scheduler.tile;
  if constexpr (SWAP_AB)
    return {(tile.across * place.blocks_m + place.m) * BLOCK_M, tile.row + place.n * BLOCK_N, args.m, tile.row_end,
            tile.group};
  else
    return {tile.row + place.m * BLOCK_M, (tile.across * place.blocks_n + place.n) * BLOCK_N, tile.row_end, args.n,
            tile.group};
}

/// Where D is one matrix for all groups, or each shard's another, it has no other.
__device__ __forceinline__ int matrix_of_d(const WorkTile& tile) {
  return GROUPING == Grouping::offsets || SCATTERS_D ? 0 : tile.batch;
}

/// The address of a group's B, where `pointers` name them; 0 if the caller's is null or aligned to less than the kernel
/// loads. The tile's product is zero then. Of the threads that ask, one `counts` the tile, unless all of it lies
/// outside of D, as may one of a cluster.
__device__ __forceinline__ u64 address_of_b(const Arguments& args, const void* pointers, const WorkTile& tile,
                                            bool counts) {
  constexpr u64 ALIGN = SWAP_AB ? ALIGN_A : ALIGN_B;
  const u64 address = ptx::ld_global<u64>(static_cast<const u64*>(pointers) + tile.batch);
  if (address != 0 && address % ALIGN == 0) return address;
  if (counts && tile.row < tile.row_end && tile.column < tile.column_end)
    count(group_arguments(args).faults->pointer, tile.batch);
  return 0;
}

/// A tile's vectors of scales: groups of rows have their own.
__device__ __forceinline__ const float* scales_of_a(const Arguments& args, const WorkTile& tile) {
  if constexpr (GROUPED)
    return args.scale_a + tile.batch * group_arguments(args).stride_scale_a;
  else
    return args.scale_a;
}
__device__ __forceinline__ const float* scales_of_b(const Arguments& args, const WorkTile& tile) {
  if constexpr (GROUPED)
    return args.scale_b + tile.batch * group_arguments(args).stride_scale_b;
  else
    return args.scale_b;
}

}  // namespace jitgemm::device
