// The producer of the Hopper loop: one warp that copies a tile's k-blocks by TMA into the ring of stages, each as soon
// as consumers have passed its stage back, and is at the next tile meanwhile (mainloop_sm90.cuh has the barriers).
#pragma once
#include "address_map.cuh"
#include "arguments.cuh"
#include "block_scales_sm90.cuh"
#include "groups.cuh"
#include "ide_sm90.cuh"
#include "layout_sm90.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/dependent_launch.cuh"
#include "ptx/elect.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/tma.cuh"
#include "shards_sm90.cuh"
#include "work_queue_sm90.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

/// Which of its matrices a map's operand is: by number, or by address (address_map.cuh).
template <bool BY_POINTERS>
struct MatrixOfMap {
  int number;
};
template <>
struct MatrixOfMap<true> {
  AddressPlace place;
};

/// What a tile loads of an operand: all BYTES of a stage's.
template <int BYTES, int BOX_ROWS, bool OF_GROUPS>
struct RowsOfTile {
  static constexpr int bytes = BYTES;
  __device__ __forceinline__ RowsOfTile(int, int) {}
  __device__ __forceinline__ bool has(int) const { return true; }
};
/// Of groups' rows the boxes that begin before the tile's end. What lies behind is another group's, and takes its share
/// of what the L2 and shared memory can move (tools/results/NOTES.md, 66); whatever is in the stage is multiplied
/// instead, for rows that are never stored.
template <int BYTES, int BOX_ROWS>
struct RowsOfTile<BYTES, BOX_ROWS, true> {
  int end, bytes;
  __device__ __forceinline__ RowsOfTile(int first, int its_end)
      : end(its_end), bytes(ceil_div(clamped(its_end - first, 0, BYTES / 128), BOX_ROWS) * BOX_ROWS * 128) {}
  __device__ __forceinline__ bool has(int row) const { return row < end; }
};
using RowsOfA = RowsOfTile<A_BYTES, GEOMETRY.a_box, GROUPS_OF_ROWS && !SWAP_AB>;
using RowsOfB = RowsOfTile<STAGE_BYTES - A_BYTES, GEOMETRY.b_box, GROUPS_OF_ROWS && SWAP_AB>;
static_assert(!GROUPS_OF_ROWS || (SWAP_AB ? B_K_MAJOR : A_K_MAJOR), "groups are of rows of a row-major A");

/// What a block fetches of an operand for all blocks that share it: its part, of so many rows in memory.
struct Part {
  int number, rows;
  u16 sharers;
};

/// Copies this block's part of a tile's operand, of BOXES where it is K-major, to all blocks that share it, or if it is
/// not SHARED to its own alone. GATED: these are pairs, which the map puts 8 and 8 in turn; of ragged ones it has no
/// groups, but all rows (tensor_maps.cpp).
template <int BLOCK, bool K_MAJOR, bool SHARED, int BOXES, int BOX_ROWS, bool GATED, bool BY_POINTERS, typename Rows>
__device__ __forceinline__ void load_operand(u32 smem, const TensorMap* map, u32 barrier, int mn, int k,
                                             const MatrixOfMap<BY_POINTERS>& matrix, const Rows& rows,
                                             const Part& part) {
  const auto copy_5d = [&](u32 to, int inner, int outer, int group, int batch) {
    if constexpr (SHARED)
      ptx::tma_load_multicast_5d(to, map, barrier, inner, outer, 0, group, batch, part.sharers);
    else
      ptx::tma_load_5d(to, map, barrier, inner, outer, 0, group, batch);
  };
  const auto copy = [&](u32 to, int inner, int outer) {
    if constexpr (BY_POINTERS)
      copy_5d(to, inner, outer, matrix.place.low, matrix.place.high);
    else if constexpr (SHARED)
      ptx::tma_load_multicast_3d(to, map, barrier, inner, outer, matrix.number, part.sharers);
    else
      ptx::tma_load_3d(to, map, barrier, inner, outer, matrix.number);
  };
  [[maybe_unused]] const auto copy_pairs = [&](u32 to, int outer, [[maybe_unused]] int group) {
    if constexpr (BY_POINTERS)
      copy(to, k, outer);
    else
      copy_5d(to, k, outer, group, matrix.number);
  };
  const int first = part.number * part.rows;
  smem += first * 128;
  if constexpr (K_MAJOR && GATED && RAGGED_PAIRS) {
#pragma unroll
    for (int i = 0; i < part.rows / 16; ++i) copy_pairs(smem + i * (16 * 128), (mn + first) / 2 + i * 8, 0);
  } else if constexpr (K_MAJOR && GATED) {
    copy_pairs(smem, 0, (mn + first) / 16);
  } else if constexpr (K_MAJOR) {
#pragma unroll
    for (int i = 0; i < BOXES; ++i) {
      const int row = mn + first + i * BOX_ROWS;
      if (rows.has(row)) copy(smem + i * (BOX_ROWS * 128), k, row);
    }
  } else {
#pragma unroll
    for (int i = 0; i < ceil_div(BLOCK, BOX); ++i) copy(smem + i * BOX_BYTES, mn + i * BOX, k + first);
  }
}

/// Returns once the barriers of all blocks of the cluster are initialised.
__device__ __forceinline__ void await_barriers(const ClusterPlace& place) {
  if (place.blocks > 1) {
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  } else {
    ptx::bar_sync(0, THREADS);
  }
}

/// What the producer does with a tile, and at the end: one thread, or a warp of which one thread `issues` the copies.
/// That all of a warp's threads count the stages leaves the numbers uniform, which TMA takes them from: the one thread
/// of many would move a dozen from its own registers first, some 100 clocks a k-block.
struct Producer {
  const Arguments& args;
  const SharedMemory& smem;
  const ClusterPlace& place;
  bool issues = true;
  u16 sharers_of_a = place.sharers_of_a(), sharers_of_b = place.sharers_of_b();
  PipelineState state = {};
  SourceOfA source_a{args};
  // Said behind the first copy, which everyone waits for (tools/results/NOTES.md, 56).
  bool lets_next_start = !args.holds_next_back;

  /// Of an operand, which IS_B of the problem or not.
  template <bool IS_B>
  __device__ __forceinline__ auto matrix_of(const void* operand, const WorkTile& tile, int number) const {
    if constexpr (IS_B && B_BY_POINTERS)
      return MatrixOfMap<true>{place_of_address(address_of_b(args, operand, tile, issues), u64(operand))};
    else
      return MatrixOfMap<false>{number};
  }

  /// `items` gave the work. A loop for each way to share: a branch in the loop took 50 clocks a k-block, and a
  /// multicast to one block, beside one to several, takes longer than a copy (tools/results/NOTES.md, 68).
  template <typename Items, typename FirstK>
  __device__ __forceinline__ void load(Items& items, const Work& work, const WorkTile& tile, const FirstK& its_k) {
    if constexpr (!CLUSTER_AT_LAUNCH)
      load<(CLUSTER_N > 1), (CLUSTER_M > 1)>(items, work, tile, its_k);
    else if (place.blocks_n > 1 && place.blocks_m > 1)
      load<true, true>(items, work, tile, its_k);
    else if (place.blocks_n > 1)
      load<true, false>(items, work, tile, its_k);
    else if (place.blocks_m > 1)
      load<false, true>(items, work, tile, its_k);
    else
      load<false, false>(items, work, tile, its_k);
  }

  /// Where work is fetched, the next is asked for as many k-blocks before the end as there are stages.
  template <bool SHARES_A, bool SHARES_B, typename Items, typename FirstK>
  __device__ __forceinline__ void load(Items& items, const Work& work, const WorkTile& tile, const FirstK& its_k) {
    const TileScales<HAS_BLOCK_SCALES> scales(args, tile);
    const TensorMap* const map_a = source_a.map(tile.batch);
    const auto matrix_a = matrix_of<SWAP_AB>(args.a, tile, source_a.matrix(tile.batch));
    // Without a stride all use one matrix.
    const auto matrix_b = matrix_of<!SWAP_AB>(args.b, tile, BATCHED && args.stride_b != 0 ? tile.batch : 0);
    const RowsOfA rows_a(tile.row, tile.row_end);
    const RowsOfB rows_b(tile.column, tile.column_end);
    const auto load_k_block = [&](int k) {
      const u32 full = smem.full(state.stage);
      ptx::mbarrier_wait_parity(smem.empty(state.stage), state.phase ^ 1);  // passes in the first pass
      if constexpr (GROUPED) ptx::warp_sync();  // none is left behind, who would find the stage full again
      if (issues) {
        ptx::mbarrier_arrive_expect_tx(full, rows_a.bytes + rows_b.bytes + scales.bytes);
        load_operand<BLOCK_M, A_K_MAJOR, SHARES_A, GEOMETRY.a_part / GEOMETRY.a_box, GEOMETRY.a_box, ROW_FOLD == 2>(
            smem.a(state.stage), map_a, full, tile.row, its_k.at(k * BLOCK_K), matrix_a, rows_a,
            Part{place.n, place.part_of_a, sharers_of_a});
        load_operand<BLOCK_N, B_K_MAJOR, SHARES_B, GEOMETRY.b_part / GEOMETRY.b_box, GEOMETRY.b_box, COLUMN_FOLD == 2>(
            smem.b(state.stage), &args.map_b, full, tile.column, its_k.at(k * BLOCK_K), matrix_b, rows_b,
            Part{place.m, place.part_of_b, sharers_of_b});
        scales.copy(smem, state.stage, full, k);
        if constexpr (DEPENDENT_LAUNCH) {
          if (lets_next_start) ptx::griddepcontrol_launch_dependents();
          lets_next_start = false;
        }
      }
      state.advance();
    };
    const int k_end = k_begin_of(work, place.k + 1);
    int k = k_begin_of(work, place.k);
    if constexpr (FETCHES) {
#pragma unroll 1
      for (; k < k_end - STAGES; ++k) load_k_block(k);
      if (issues) items.fetch();
    }
#pragma unroll 1
    for (; k < k_end; ++k) load_k_block(k);
  }
  /// The block outlives what others do at its barriers.
  __device__ __forceinline__ void await_sharers() {
    constexpr int AT_ONCE = CLUSTER_AT_LAUNCH ? 1 : STAGES;
    if (place.sharers() > 1) {
#pragma unroll AT_ONCE
      for (int stage = 0; stage < STAGES; ++stage) {
        ptx::mbarrier_wait_parity(smem.empty(state.stage), state.phase ^ 1);
        state.advance();
      }
    }
  }
};

/// One warp.
__device__ __forceinline__ void produce(const Arguments& args, const SharedMemory& smem, const ClusterPlace& place) {
  Scheduler scheduler = scheduler_of(args, place.cluster());
  Producer producer{args, smem, place};
  Work work{};
  if constexpr (GROUPED) {
    // Memory that a kernel before may write says what there is to do, and it takes the warp to find out.
    await_barriers(place);
    const bool is_elected = producer.issues = ptx::elect_one();
    if constexpr (DEPENDENT_LAUNCH) ptx::griddepcontrol_wait();
    FetchedWork items(scheduler, args, smem, place, is_elected);
    for (items.begin(); items.find(work); items.advance())
      producer.load(items, work, tile_of(args, scheduler, work, place), first_k(scheduler));
    producer.await_sharers();
    if (is_elected) report(scheduler);
  } else {
    bool more = scheduler.first(work);
    WorkTile tile = tile_of(args, scheduler, work, place);
    await_barriers(place);
    if (!ptx::elect_one()) return;
    if constexpr (DEPENDENT_LAUNCH) ptx::griddepcontrol_wait();
    while (more) {
      producer.load(scheduler, work, tile, first_k(scheduler));
      more = scheduler.next(work);
      if (more) tile = tile_of(args, scheduler, work, place);
    }
    producer.await_sharers();
  }
}

}  // namespace jitgemm::device
