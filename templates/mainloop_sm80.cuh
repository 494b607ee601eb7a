// The portable main loop, sm_80 and newer: cp.async fills a ring of STAGES k-blocks in shared memory, a Multiplier
// consumes it (multiply_*.cuh). The ring runs on from one tile to the next, so that the next tile loads while this one
// is stored.
//
// barrier     who arrives  how many    who waits    phase
// cp.async    each thread  a group a   that thread  one a k-block; STAGES - 2 groups may be on their way
//                          k-block
// bar.sync 0  all threads  THREADS     all threads  one a k-block: the stage is there, the one before it has been read;
//                                                   one an item: its entry in the queue is written; two a split tile:
//                                                   its partial sums are stored
#pragma once
#include "arguments.cuh"
#include "block_scales_sm80.cuh"
#include "epilogue.cuh"
#include "fixup.cuh"
#include "groups.cuh"
#include "ide_sm80.cuh"
#include "multiply_mma.cuh"
#include "operand_loader_sm80.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/dependent_launch.cuh"
#include "ptx/shared.cuh"
#include "ptx/special_registers.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

constexpr int THREADS = GEOMETRY.threads, BLOCKS_PER_SM = GEOMETRY.ctas_per_sm;
constexpr int LOADS_OF_PEERS = ACCUMULATORS < 64 ? 8 : 16;  // three and more blocks share an SM, and its registers

/// The work that the loader has begun and the multiplication not yet ended, in shared memory to spare registers. Thread
/// 0 writes. The loader is STAGES k-blocks ahead at most.
struct WorkInFlight {
  static constexpr int ENTRY_BYTES = sm80::queue_entry_bytes, BYTES = GEOMETRY.queue_bytes;
  u32 smem;

  /// Entries go by their address.
  __device__ __forceinline__ u32 next(u32 entry) const {
    return entry + ENTRY_BYTES == smem + BYTES ? smem : entry + ENTRY_BYTES;
  }

  /// An empty range of k-blocks ends the queue.
  static __device__ __forceinline__ void write(u32 entry, const Work& work) {
    if (ptx::thread_index() != 0) return;
    ptx::st_shared_v4(entry, {u32(work.k_begin), u32(work.k_end), GROUPED ? u32(work.tile) : 0, 0});
    if constexpr (!GROUPED) ptx::st_shared_v4(entry + 16, {u32(work.tile), u32(work.peers), u32(work.peer), 0});
  }
  /// Groups' tiles, which have no peers, are found once.
  static __device__ __forceinline__ void write_tile(u32 entry, const WorkTile& tile) {
    if (ptx::thread_index() != 0) return;
    ptx::st_shared_v4(entry + 16, {u32(tile.row), u32(tile.column), u32(tile.row_end), u32(tile.batch)});
  }

  static __device__ __forceinline__ int k_blocks(u32 entry) {
    const U32x4 x = ptx::ld_shared_v4(entry);
    return int(x.y - x.x);
  }
  static __device__ __forceinline__ Work read(u32 entry) {
    const U32x4 k = ptx::ld_shared_v4(entry);
    if constexpr (GROUPED) {
      return {int(k.z), int(k.x), int(k.y), 1, 0};
    } else {
      const U32x4 x = ptx::ld_shared_v4(entry + 16);
      return {int(x.x), int(k.x), int(k.y), int(x.y), int(x.z)};
    }
  }
  static __device__ __forceinline__ WorkTile tile(const Arguments& args, u32 entry) {
    if constexpr (GROUPED) {
      const U32x4 x = ptx::ld_shared_v4(entry + 16);
      return {int(x.x), int(x.y), int(x.z), args.n, int(x.w)};
    } else {
      const TileIndex index = raster(read(entry).tile, args.decomposition, GROUP_M);
      return work_tile(args, index.m, index.n, index.batch);
    }
  }
};

/// Runs ahead of the multiplication through this CTA's work, one k-block and one commit group at a time.
struct StageLoader {
  const Arguments& args;
  WorkInFlight queue;
  Scheduler scheduler;
  u32 entry;          // of the queue, the current work's
  int k, k_end;       // next k-block and the end of the current work; equal when there is no more
  bool interior;      // in M and N
  bool has_b = true;  // else its pointer is none, and all that is multiplied is zeros
  OperandLoader<ElementA, BLOCK_M, A_K_MAJOR, ALIGN_A> a;
  OperandLoader<ElementB, BLOCK_N, B_K_MAJOR, ALIGN_B, PAIRS> b;

  __device__ __forceinline__ StageLoader(const Arguments& arguments, const WorkInFlight& work_in_flight)
      : args(arguments),
        queue(work_in_flight),
        scheduler(scheduler_of(arguments, int(ptx::block_index()))),
        entry(work_in_flight.smem),
        a(arguments.lda, arguments.m),
        b(arguments.ldb, arguments.n) {
    Work work{};
    begin_work(work, scheduler.first(work));
  }

  __device__ __forceinline__ void next_work() {
    ptx::bar_sync(0, THREADS);  // thread 0 has written the entry
    Work work = WorkInFlight::read(entry);
    entry = queue.next(entry);
    begin_work(work, scheduler.next(work));
  }

  __device__ __forceinline__ void begin_work(Work& work, bool exists) {
    if (exists) {
      const WorkTile tile = work_tile(args, scheduler, work, NoCluster{});
      const int first = first_k(scheduler).at(work.k_begin * BLOCK_K);
      a.seek(args.a, batch_offset(tile.batch, args.stride_a), tile.row, tile.row_end, first);
      if constexpr (B_BY_POINTERS) {
        const u64 address = address_of_b(args, args.b, tile, ptx::thread_index() == 0);
        has_b = address != 0;
        b.seek(reinterpret_cast<const void*>(address), 0, tile.column, tile.column_end, first);
      } else {
        b.seek(args.b, batch_offset(tile.batch, args.stride_b), tile.column, tile.column_end, first);
      }
      interior = tile.contains(tile.row, tile.column, BLOCK_M, BLOCK_N);
      if constexpr (GROUPED) WorkInFlight::write_tile(entry, tile);
    } else {
      work.k_begin = work.k_end = 0;
    }
    k = work.k_begin;
    k_end = work.k_end;
    WorkInFlight::write(entry, work);
  }

  /// Starts the copy of the next k-block to a stage of the ring.
  __device__ __forceinline__ void begin(u32 stage) {
    if (k < k_end) {
      const int k_left = !B_BY_POINTERS || has_b ? k_of_tile(args, scheduler).count - k * BLOCK_K : 0;
      if (interior && k_left >= BLOCK_K) {
        a.template begin<true>(stage, k_left);
        b.template begin<true>(stage + TileA::BYTES, k_left);
      } else {
        a.template begin<false>(stage, k_left);
        b.template begin<false>(stage + TileA::BYTES, k_left);
      }
    }
    ptx::cp_async_commit_group();  // an empty one too: the waits count groups
  }

  /// The part of the copy that waits for begin()'s loads; then on to the k-block after it. When there is no more, a
  /// stage that nobody reads gets what nobody needs.
  __device__ __forceinline__ void finish(u32 stage) {
    a.finish(stage);
    b.finish(stage + TileA::BYTES);
    if (++k == k_end) {
      next_work();
    } else {
      a.advance();
      b.advance();
    }
  }
};

/// A warp's tile from (row, column) of D on.
template <bool INTERIOR>
__device__ __forceinline__ void store_warp_tile(const Epilogue& epilogue, int row, int column,
                                                const Accumulator (&accumulators)[ACCUMULATORS]) {
  using WarpElements = Elements<WarpFragment>;
  constexpr int NEIGHBOUR = WarpElements::NEIGHBOUR, UP = WarpElements::UP;
  const WarpElements elements(0, ptx::thread_index() % 32);
  const FragmentScales<WarpElements, WARP_M / 16, INTERIOR> scales(epilogue.args, epilogue.scales, epilogue.tile,
                                                                   elements, row, column);
#pragma unroll
  for (int down = 0; down < WARP_M / 16; ++down)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int two = 0; two < WarpElements::PAIRS; two += 2)  // short loops: what they share is found once
#pragma unroll
        for (int e = 0; e < 2 && two + e < WarpElements::PAIRS; ++e) {
          const Accumulator* x = accumulators + WarpElements::sum(down, half, two + e);
          NeighbourFactors factors;
          scales.get(down, half, two + e, factors);
          epilogue.store_pair<INTERIOR>(row + elements.row_of(down, half), column + elements.column_of(two + e),
                                        factors, ElementCompute(x[0]), ElementCompute(x[NEIGHBOUR]),
                                        ElementCompute(x[UP]), ElementCompute(x[UP + NEIGHBOUR]));
        }
}

/// The ring of stages, which go by their address.
struct Ring {
  u32 smem;

  __device__ __forceinline__ u32 next(u32 stage) const {
    return stage == smem + (STAGES - 1) * STAGE_BYTES ? smem : stage + STAGE_BYTES;
  }
  __device__ __forceinline__ u32 previous(u32 stage) const {
    return stage == smem ? smem + (STAGES - 1) * STAGE_BYTES : stage - STAGE_BYTES;
  }
};

__device__ __forceinline__ void gemm(const Arguments& args) {
  if constexpr (DEPENDENT_LAUNCH) ptx::griddepcontrol_wait();
  const u32 smem = (ptx::dynamic_smem() + SMEM_ALIGN - 1) / SMEM_ALIGN * SMEM_ALIGN;
  const Ring ring{smem};
  const WorkInFlight queue{smem + STAGES * STAGE_BYTES};
  const u32 warp = ptx::thread_index() / 32;
  const u32 warp_m = warp % WARPS_M, warp_n = warp / WARPS_M;

  StageLoader loader(args, queue);
#pragma unroll 1
  for (int i = 0; i < STAGES - 1; ++i) {
    loader.begin(smem + i * STAGE_BYTES);
    if constexpr (DEPENDENT_LAUNCH) {
      // Behind the first copies, which everyone waits for (tools/results/NOTES.md, 56).
      if (i == 0 && !args.holds_next_back) ptx::griddepcontrol_launch_dependents();
    }
    loader.finish(smem + i * STAGE_BYTES);
  }

  const auto await_next_stage = [] {
    ptx::cp_async_wait_group<STAGES - 2>();  // it has landed for this thread,
    ptx::bar_sync(0, THREADS);               // for all, and all are done with the one before it, which is loaded next
  };
  await_next_stage();
  const Scales scales(args);
  Multiplier multiplier(warp_m, warp_n);
  u32 stage = smem;
  for (u32 entry = queue.smem; WorkInFlight::k_blocks(entry) > 0; entry = queue.next(entry)) {
    multiplier.load(stage, 0);
    Accumulator accumulators[ACCUMULATORS];
#pragma unroll
    for (Accumulator& x : accumulators) x = 0;
    auto of_blocks = [&] {
      if constexpr (HAS_BLOCK_SCALES) {
        const Work work = WorkInFlight::read(entry);
        const WorkTile tile = tile_in_d(WorkInFlight::tile(args, entry));
        return BlockScales<WarpFragment, WARP_M / 16>(args, tile, WarpFragment(0, ptx::thread_index() % 32),
                                                      tile.row + warp_m * WARP_M,
                                                      tile.column + warp_n * (WARP_N / COLUMN_FOLD), work.k_begin);
      } else {
        return NoBlockScales{};
      }
    }();
    Accumulator of_block[ACCUMULATORS];
    auto& sums = HAS_BLOCK_SCALES ? of_block : accumulators;

#pragma unroll 1
    for (int k_blocks = WorkInFlight::k_blocks(entry); k_blocks > 0; --k_blocks) {
      of_blocks.load_next();
      if constexpr (HAS_BLOCK_SCALES) {
#pragma unroll
        for (Accumulator& x : of_block) x = 0;
      }
#pragma unroll
      for (int step = 0; step < MMA_STEPS; ++step) {
        if (step == 0) loader.begin(ring.previous(stage));
        if (step < MMA_STEPS - 1) {
          multiplier.load(stage, step + 1);
        } else {
          await_next_stage();
          multiplier.load(ring.next(stage), 0);  // after a tile's last k-block for nothing: a branch would cost more
        }
        multiplier.multiply(step, sums);
        if (step == MMA_STEPS - 2) loader.finish(ring.previous(stage));
      }
      of_blocks.add(of_block, accumulators);
      stage = ring.next(stage);
    }

    const auto work = [&] { return WorkInFlight::read(entry); };
    if (!reduce_peers<1, THREADS, LOADS_OF_PEERS>(args, work, 0, ptx::thread_index(), 0, accumulators)) continue;
    const WorkTile tile = tile_in_d(WorkInFlight::tile(args, entry));
    const Epilogue epilogue{args, scales, tile};
    constexpr int WARP_COLUMNS = WARP_N / COLUMN_FOLD;
    const int row = tile.row + warp_m * WARP_M, column = tile.column + warp_n * WARP_COLUMNS;
    if (tile.contains(row, column, WARP_M, WARP_COLUMNS))
      store_warp_tile<true>(epilogue, row, column, accumulators);
    else
      store_warp_tile<false>(epilogue, row, column, accumulators);
  }
  if (GROUPED && ptx::thread_index() == 0) report(loader.scheduler);
}

}  // namespace jitgemm::device
