// The Hopper main loop, sm_90a: one thread of a producer warpgroup fills a ring of STAGES k-blocks by TMA, one to three
// consumer warpgroups multiply it with wgmma and store D by TMA while the producer is already at the next tile. A pair
// of mbarriers a stage passes it back and forth. Blocks of a cluster that share rows of A or columns of B fetch a part
// of them each, for all.
//
// barrier       who arrives                                  how many            who waits          phase
// full(stage)   the producer's thread, and the bytes of A    1, and the bytes    consumers that     one a pass of
//               and B, from each block that fetches them                         multiply it        the ring
// empty(stage)  a lane of each warp that has multiplied it,  4 warps, x          the producer's     one a pass; the
//               in each block that the stage is sent to      consumers, sharers  thread (of groups  first wait passes
//                                                                                its warp)
// turn(c)       ping-pong: a lane of each warp of the other  4                   consumer c         one an item of c,
//               consumer, once its products are issued                                              of 0 one passes
// promotion_    consumers that promote in turns: a lane of   4                   consumer c         one a turn, of 0
// turn(c)       each warp of the one before, once its                                               the first passes
//               products are issued
// peers_done    where a cluster splits k: a lane of each warp  4 x CONSUMERS       all consumers      one
//               of each block that adds up the tile          x CLUSTER_K
// sums_there    the thread that initialises it, and the      1, and the bytes    all consumers      one
//               partial sums of each block that adds up
//               the tile
// fetched       work_queue_sm90.cuh, of groups' tiles
// stored(c)     consumer c's first thread, once a tile for   1                   the mover of c      one such a tile
//               another rank is there (shards_sm90.cuh)
// taken(c)      the mover's first lane, once it knows        1                   consumer c's first  one such a tile,
//                                                                                thread              the first passes
// bar.sync 0    all threads; in a cluster its own barrier,   THREADS             all threads        once: the barriers
//               for the other blocks' threads, too                                                  are there
// bar.sync 1+c  consumer c: its stage of D is free, or is    128                 consumer c         two a subtile or
//               full; its partial sums are stored                                                   a split tile
// bar.sync      groups along k: what is beside a group's own  128 x consumers     all consumers      one a tile that
// 1+CONSUMERS   is zeros (ping-pong: 1+c, its own)                                                   ends in a k-block,
//                                                                                                    or begins in one
//
// No wait is in a circle: consumers wait for full and for each other's turns, of one k-block, in the order of the work,
// which is the producer's order, too; the producer waits for empty alone, which no consumer withholds once it has its
// stage and the next one, and before it fetches for the tile before the last to be known, which consumers ask for as
// they come to it. Blocks of a cluster are resident together and may wait for each other; no
// cluster waits for another (fixup.cuh).
#pragma once
#include "arguments.cuh"
#include "block_scales_sm90.cuh"
#include "cluster_sum.cuh"
#include "epilogue.cuh"
#include "fixup.cuh"
#include "groups.cuh"
#include "ide_sm90.cuh"
#include "layout_sm90.cuh"
#include "multiply_sm90.cuh"
#include "operands_ahead.cuh"
#include "producer_sm90.cuh"
#include "ptx/cluster.cuh"
#include "ptx/dependent_launch.cuh"
#include "ptx/elect.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "shards_sm90.cuh"
#include "store_sm90.cuh"
#include "work_queue_sm90.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

/// One consumer warpgroup; `thread` counts within it.
__device__ __forceinline__ void consume(const Arguments& args, const SharedMemory& smem, const ClusterPlace& place,
                                        u32 consumer, u32 thread) {
  const u32 lane = thread % 32;
  const u32 first_row = PING_PONG ? 0 : consumer * CONSUMER_ROWS;
  Scheduler scheduler = scheduler_of(args, place.cluster());
  // Of a warp, one lane for each block that waits for it before it fetches again.
  const bool releases = lane < u32(place.sharers());
  int here = releases && place.sharers() == 1, elsewhere = releases && place.sharers() > 1;
  if constexpr (CLUSTER_AT_LAUNCH) {  // not once a k-block
    ptx::compute_now(here);
    ptx::compute_now(elsewhere);
  }
  const u32 released = place.sharer(int(lane));
  const auto release = [&](u32 empty) {
    if (here) ptx::mbarrier_arrive(empty);
    if (elsewhere) ptx::mbarrier_arrive_cluster(ptx::map_to_rank(empty, released));
  };

  PlaceOfD scattered(args, smem, consumer, thread);
  const auto between = [&](int step) {
    if (SCATTERS_D && step == 4) scattered.tell();
  };

  const Scales scales(args);
  PipelineState state;
  u32 item = 0, subtiles = 0, turn_parity = consumer == 0;
  Work work;
  auto&& items = work_of_consumer(scheduler, smem);
  for (bool more = items.first(work); more; more = items.next(work)) {
    // Uniform, which the compiler does not see where whether there is more work depends on a barrier's result
    // (fixup.cuh).
    const int k_blocks = int(ptx::warp_uniform(u32(k_begin_of(work, place.k + 1) - k_begin_of(work, place.k))));
    if constexpr (PING_PONG) {
      const u32 turn = item++;
      if (turn % 2 != consumer) {
        state.advance(k_blocks);
        continue;
      }
      // The other one has seen the k-block before: a parity tells only the current pass of a stage from the one before.
      ptx::mbarrier_wait_parity(smem.turn(consumer), turn / 2 % 2 ^ (consumer == 0));  // the first turn passes
    }
    const WorkTile tile = tile_in_d(tile_of(args, scheduler, work, place));
    const int row = tile.row + first_row / ROW_FOLD, column = tile.column + place.k * STORE_COLUMNS;
    int interior = EDGES_DIFFER && tile.contains(row, column, CONSUMER_ROWS / ROW_FOLD, STORE_COLUMNS);
    if constexpr (EDGES_DIFFER) ptx::compute_now(interior);
    if constexpr (READS_C || BIAS != Bias::none || HAS_CUSTOM_EPILOGUE) {
      if (work.peer == 0 && scattered.is_own(tile))
        Epilogue::prefetch_operands<CONSUMER_ROWS / ROW_FOLD, STORE_COLUMNS, ASKS_FOR_ALL>(args, tile, row, column,
                                                                                           thread, 128);
    }
    if constexpr (HAS_VECTOR_SCALES && !ASKS_FOR_ALL)
      Scales::prefetch<CONSUMER_ROWS / ROW_FOLD, STORE_COLUMNS>(args, tile, row, column, thread, 128);
    Accumulator accumulators[COUNT];
    BlockScales<HAS_BLOCK_SCALES, TileFragment, MMAS_M> scales_of_blocks(args, tile, thread, row, first_row,
                                                                         k_begin_of(work, place.k));
    // Uniform as k_blocks are.
    const int columns = NARROWS ? int(ptx::warp_uniform(u32(tile.column_end - tile.column))) : BLOCK_N;
    const int rows = MAY_PASS || MAY_SHORTEN ? int(ptx::warp_uniform(u32(tile.row_end - tile.row))) : BLOCK_M;
    OperandsAhead operands(args, tile, thread / 32, lane, row, column);
    const auto ask = [&](bool is_time) {
      if (HAS_OPERANDS && is_time && scattered.is_own(tile)) operands.ask();
    };
    ask(ASKS_AT_START);
    const auto behind_last = [&]() { ask(ASKS_BEHIND_LAST); };
    const auto products = [&](auto width, auto mmas) {
      return TileProducts<decltype(width)::value, decltype(mmas)::value, decltype(release), decltype(between),
                          decltype(behind_last), decltype(scales_of_blocks)>{
          smem,    consumer,    thread,           first_row,   k_blocks,    k_of_tile(args, scheduler), state, release,
          between, behind_last, scales_of_blocks, turn_parity, accumulators};
    };
    using All = Constant<MMAS_M>;
    if (MAY_PASS && rows <= int(first_row)) {
      products(Constant<BLOCK_N>{}, All{}).pass();
      continue;
    }
    bool is_short = false;
    if constexpr (MAY_SHORTEN) {
      is_short = rows <= int(first_row) + 64;
      if (is_short) products(Constant<BLOCK_N>{}, Constant<1>{}).add_up();
    }
    if (!is_short)
      with_width<NARROWS ? GROUP_STEP : BLOCK_N>(columns, [&](auto width) { products(width, All{}).add_up(); });

    const auto finish_with = [&](const auto& epilogue, const Accumulator(&sums)[STORE_COUNT]) {
      if (EDGES_DIFFER && interior)
        store<EDGES_DIFFER>(epilogue, smem, consumer, thread, row, column, sums, operands, subtiles);
      else
        store<false>(epilogue, smem, consumer, thread, row, column, sums, operands, subtiles);
    };
    const auto finish = [&](const Accumulator(&sums)[STORE_COUNT]) {
      ask(!ASKS_AT_START && !ASKS_BEHIND_LAST);
      finish_with(Epilogue{args, scales, tile}, sums);
    };
    constexpr int GROUPS = CLUSTER * GEOMETRY.arriving_groups;
    const u32 group = place.rank * GEOMETRY.arriving_groups + (PING_PONG ? 0 : consumer);
    const auto get_work = [&]() -> const Work& { return work; };
    if constexpr (CLUSTER_K > 1) {
      Accumulator sums[STORE_COUNT];
      ClusterSum{smem, place}.add(consumer, thread, accumulators, sums);
      if (reduce_peers<GROUPS, 128, 16>(args, get_work, group, thread, 1 + consumer, sums)) finish(sums);
    } else {
      if (!reduce_peers<GROUPS, 128, 16>(args, get_work, group, thread, 1 + consumer, accumulators)) continue;
      auto& sums = reinterpret_cast<Accumulator(&)[STORE_COUNT]>(accumulators);  // STORE_COUNT = COUNT
      scattered.tell();
      if (scattered.sends(scales, tile, [&](const auto& epilogue) { finish_with(epilogue, sums); })) continue;
      scattered.add(tile, row, column, accumulators);
      finish(sums);
    }
  }
  scattered.tell();
  if (TMA_STORE && thread == 0) ptx::tma_store_wait_group_read<0>();  // shared memory outlives its readers
}

/// One thread.
__device__ __forceinline__ void initialise_barriers(const SharedMemory& smem, const ClusterPlace& place) {
#pragma unroll
  for (int stage = 0; stage < STAGES; ++stage) {
    ptx::mbarrier_init(smem.full(stage), 1);
    // A lane of each warp that multiplies the stage, in each block that it is sent to.
    ptx::mbarrier_init(smem.empty(stage), (PING_PONG ? 1 : CONSUMERS) * 4 * place.sharers());
  }
  if constexpr (PING_PONG) {
    ptx::mbarrier_init(smem.turn(0), 4);  // a lane of each warp
    ptx::mbarrier_init(smem.turn(1), 4);
  }
  if constexpr (TAKES_TURNS)
    for (int consumer = 0; consumer < CONSUMERS; ++consumer) ptx::mbarrier_init(smem.promotion_turn(consumer), 4);
  if constexpr (FETCHES) WorkQueue::initialise(smem);
  if constexpr (SCATTERS_D)
    for (int consumer = 0; consumer < CONSUMERS; ++consumer) {
      ptx::mbarrier_init(smem.stored(consumer), 1);
      ptx::mbarrier_init(smem.taken(consumer), 1);
    }
  if constexpr (CLUSTER_K > 1) ClusterSum::initialise(smem);
  ptx::fence_mbarrier_init();
}

__device__ __forceinline__ void gemm(const Arguments& args) {
  u32 base = (ptx::dynamic_smem() + 1023) / 1024 * 1024;
  // A value that ptxas cannot make again: where registers are scarce it reads the block's window (S2UR) once a k-block
  // rather than keep it, between the last products and the next.
  if constexpr (GROUPED || HAS_BLOCK_SCALES) base = ptx::warp_uniform(base);
  const SharedMemory smem{base};
  const u32 warp = ptx::warp_uniform(ptx::thread_index() / 32), thread = ptx::thread_index() % 128;
  const ClusterPlace place(args);

  if (warp == 1) {
    if (ptx::elect_one()) initialise_barriers(smem, place);
  } else if (warp == 2 && ptx::elect_one()) {
    ptx::prefetch_tensormap(&args.map_a);
    ptx::prefetch_tensormap(&args.map_b);
    if (TMA_STORE) ptx::prefetch_tensormap(&args.map_d);
  }

  if (warp < 4) {
    if constexpr (CONSUMERS > 1) ptx::setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (warp == 0) {
      produce(args, smem, place);
    } else {
      await_barriers(place);
      if constexpr (SCATTERS_D) {
        if constexpr (DEPENDENT_LAUNCH) ptx::griddepcontrol_wait();
        if (int(warp) <= CONSUMERS) move(args, smem, place, warp - 1, thread % 32);
      }
    }
  } else {
    if constexpr (CONSUMERS > 1) ptx::setmaxnreg_inc<CONSUMER_REGISTERS>();
    await_barriers(place);
    if constexpr (DEPENDENT_LAUNCH) ptx::griddepcontrol_wait();
    consume(args, smem, place, warp / 4 - 1, thread);
  }
}

}  // namespace jitgemm::device
