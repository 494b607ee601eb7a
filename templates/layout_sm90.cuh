// The Hopper main loop's constants, and what lies where in shared memory.
#pragma once
#include "arguments.cuh"
#include "fragment.cuh"
#include "groups.cuh"
#include "ide_sm90.cuh"
#include "pairs.cuh"
#include "ptx/cluster.cuh"
#include "ptx/special_registers.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

constexpr int CONSUMERS = GEOMETRY.consumers;  // warpgroups
constexpr int THREADS = GEOMETRY.threads, BLOCKS_PER_SM = GEOMETRY.ctas_per_sm;
constexpr int CONSUMER_ROWS = GEOMETRY.consumer_rows;
constexpr int MMAS_M = CONSUMER_ROWS / 64;  // an m64 wgmma each
constexpr int MMAS_AT_ONCE = GEOMETRY.rows_promoted / 64, K_BLOCKS_AT_ONCE = GEOMETRY.k_blocks_promoted;
constexpr int COLUMN_PARTS = BLOCK_N / GEOMETRY.columns_promoted;
constexpr int COUNT = GEOMETRY.accumulators;           // a thread
constexpr bool TAKES_TURNS = GEOMETRY.turn_bytes > 0;  // promoting consumers, to multiply
// A group's last tile may have no rows for some consumers.
constexpr bool MAY_PASS = GROUPED && !ALONG_K && !SWAP_AB && !PING_PONG && CONSUMERS > 1;
// Or for the second half of a consumer's.
constexpr bool MAY_SHORTEN = GROUPED && !ALONG_K && !SWAP_AB && MMAS_M == 2;
constexpr int CLUSTER = GEOMETRY.cluster;

// 65536 registers an SM are 512 a thread of each of four warpgroups. One consumer has enough as it is.
constexpr int PRODUCER_REGISTERS = CONSUMERS == 3 ? 32 : 40;
constexpr int CONSUMER_REGISTERS = CONSUMERS == 3 ? 160 : 232;

constexpr int BOX = 128 / int(sizeof(ElementA));  // elements of a row of a TMA box
constexpr int BOX_BYTES = BLOCK_K * 128;
constexpr int A_BYTES = GEOMETRY.a_bytes, STAGE_BYTES = GEOMETRY.stage_bytes;

constexpr int STORE_COLUMNS = GEOMETRY.store_columns, SUBTILE_COLUMNS = GEOMETRY.subtile_columns;
constexpr bool TMA_STORE = GEOMETRY.tma_store;
constexpr int D_BOX_WIDTH = GEOMETRY.d_box_bytes, D_BOX_ROWS = GEOMETRY.d_box_rows;
constexpr int D_STAGE_BYTES = sm90::d_stage_bytes, D_STAGES = GEOMETRY.d_stages;
constexpr bool D_IN_RING = GEOMETRY.d_in_ring;
constexpr int SCALE_BYTES = GEOMETRY.scale_bytes, SCALE_A_BYTES = GEOMETRY.scale_a_bytes;

// What a consumer's thread has of each 64 rows: as wgmma leaves it, and of those columns that the block stores.
using TileFragment = Fragment<4, BLOCK_N>;
using StoreFragment = Fragment<4, BLOCK_N / CLUSTER_K>;

constexpr int STORE_ROWS = 64 / ROW_FOLD;                           // of D, of one wgmma's
constexpr int SUBTILES = ceil_div(STORE_COLUMNS, SUBTILE_COLUMNS);  // of these rows; the last may be narrower
using SubtileFragment = Elements<Fragment<4, SUBTILE_COLUMNS * COLUMN_FOLD>>;
constexpr int STORE_COUNT = StoreFragment::count(CONSUMER_ROWS);  // accumulators a thread
constexpr bool THROUGH_SHARED = TMA_STORE || (sizeof(ElementD) == 2 && ROW_FOLD == 1);

/// Where byte `at` of D's row lies in a stage: boxes of D_BOX_WIDTH bytes, each with TMA's swizzle of that width, side
/// by side.
__device__ __forceinline__ u32 swizzled_d(u32 row, u32 at) {
  constexpr u32 ROWS = SWAP_AB ? SUBTILE_COLUMNS : 64, ROWS_A_SWIZZLE_STEP = 128 / D_BOX_WIDTH,
                CHUNKS = D_BOX_WIDTH / 16;
  const u32 inner = at % D_BOX_WIDTH;
  return at / D_BOX_WIDTH * (ROWS * D_BOX_WIDTH) + row * D_BOX_WIDTH +
         (inner / 16 ^ row / ROWS_A_SWIZZLE_STEP % CHUNKS) * 16 + inner % 16;
}

struct SharedMemory {
  u32 base;  // 1024-byte aligned, as the swizzle needs

  __device__ __forceinline__ u32 a(int stage) const { return base + stage * STAGE_BYTES; }
  __device__ __forceinline__ u32 b(int stage) const { return a(stage) + A_BYTES; }
  /// In the ring, what the consumer alone has read: its rows of A.
  __device__ __forceinline__ u32 d(u32 consumer, u32 stage) const {
    if constexpr (D_IN_RING)
      return a(stage / MMAS_M) + ((PING_PONG ? 0 : consumer) * MMAS_M + stage % MMAS_M) * D_STAGE_BYTES;
    else
      return base + STAGES * STAGE_BYTES + (consumer * D_STAGES + stage) * D_STAGE_BYTES;
  }
  /// Of blocks of k: those of the rows of A, and of the columns of B.
  __device__ __forceinline__ u32 scales_a(int stage) const {
    return base + STAGES * STAGE_BYTES + (D_IN_RING ? 0 : CONSUMERS * D_STAGES * D_STAGE_BYTES) + stage * SCALE_BYTES;
  }
  __device__ __forceinline__ u32 scales_b(int stage) const { return scales_a(stage) + SCALE_A_BYTES; }
  __device__ __forceinline__ u32 full(int stage) const { return scales_a(STAGES) + stage * 16; }
  __device__ __forceinline__ u32 empty(int stage) const { return full(stage) + 8; }
  __device__ __forceinline__ u32 turn(u32 consumer) const { return full(STAGES) + consumer * 8; }  // of ping-pong
  __device__ __forceinline__ u32 fetched(int slot) const {  // and 16 bytes on its barriers, full and empty
    return full(STAGES) + 16 + slot * sm90::queue_slot_bytes;
  }
  // Of sums that go to another rank: a consumer has stored some, the mover has seen it.
  __device__ __forceinline__ u32 stored(u32 consumer) const { return full(STAGES) + 16 + consumer * 16; }
  __device__ __forceinline__ u32 taken(u32 consumer) const { return stored(consumer) + 8; }
  __device__ __forceinline__ u32 promotion_turn(u32 consumer) const {
    return full(STAGES) + 16 + GEOMETRY.queue_bytes + GEOMETRY.mover_bytes + consumer * 8;
  }
  // Of clusters that split k: who adds up the tile has read its stages, and its partial sums are there.
  __device__ __forceinline__ u32 peers_done() const { return full(STAGES); }
  __device__ __forceinline__ u32 sums_there() const { return full(STAGES) + 8; }
};

/// Where a thread is in the ring of stages; `phase` is the parity of the current pass.
struct PipelineState {
  int stage = 0;
  u32 phase = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) {
      stage = 0;
      phase ^= 1;
    }
  }
  __device__ __forceinline__ void advance(int steps) {
    const u32 to = u32(stage + steps);
    phase ^= to / STAGES & 1;
    stage = int(to % STAGES);
  }
};

/// How many blocks a cluster has along M and N, and of what they share each one's part, in rows in memory: known where
/// the kernel is made.
template <bool AT_LAUNCH>
struct ClusterShape {
  static constexpr int blocks_m = CLUSTER_M, blocks_n = CLUSTER_N, blocks = CLUSTER;
  static constexpr int part_of_a = GEOMETRY.a_part, part_of_b = GEOMETRY.b_part;
  __device__ __forceinline__ explicit ClusterShape(const Arguments&) {}
  /// A bit for each block along N.
  template <typename Place>
  static __device__ __forceinline__ u32 row_of(const Place& place) {
    u32 row = 0;
    for (int i = 0; i < blocks_n; ++i) row |= 1u << place.rank_of(place.m, i, place.k);
    return row;
  }
};

/// What a launch says: to divide by a number would be some forty instructions before the first copy.
struct PowerOfTwo {
  int bits;
  __device__ __forceinline__ operator int() const { return 1 << bits; }
};
__device__ __forceinline__ int operator/(int x, PowerOfTwo by) { return x >> by.bits; }
__device__ __forceinline__ u32 operator/(u32 x, PowerOfTwo by) { return x >> by.bits; }
__device__ __forceinline__ u32 operator%(u32 x, PowerOfTwo by) { return x & ((1u << by.bits) - 1); }

static_assert(!CLUSTER_AT_LAUNCH || (CLUSTER_M == 1 && CLUSTER_N == 1), "else parts are of a kernel with one cluster");

template <>
struct ClusterShape<true> {
  PowerOfTwo blocks_m, blocks_n, blocks;
  int part_of_a, part_of_b;
  u32 row;
  template <typename Place>
  __device__ __forceinline__ u32 row_of(const Place& place) const {
    return row << place.rank_of(place.m, 0, place.k);
  }
  __device__ __forceinline__ explicit ClusterShape(const Arguments& args)
      : blocks_m{args.cluster_m_bits},
        blocks_n{args.cluster_n_bits},
        blocks{blocks_m.bits + blocks_n.bits + (CLUSTER_K >= 2) + (CLUSTER_K >= 4) + (CLUSTER_K >= 8)},
        part_of_a(GEOMETRY.a_part / blocks_n),
        part_of_b(GEOMETRY.b_part / blocks_m),
        row(args.cluster_row) {}
};

/// A block's place in its cluster, whose blocks are numbered along M first, then along N, then along K.
struct ClusterPlace : ClusterShape<CLUSTER_AT_LAUNCH> {
  u32 rank;
  int m, n, k;

  __device__ __forceinline__ explicit ClusterPlace(const Arguments& args)
      : ClusterShape(args), rank(CLUSTER > 1 || CLUSTER_AT_LAUNCH ? ptx::cluster_rank() : 0) {
    m = rank % blocks_m;
    n = rank / blocks_m % blocks_n;
    // The compiler does not see that it is 0 where the launch says how many blocks there are.
    k = CLUSTER_AT_LAUNCH && CLUSTER_K == 1 ? 0 : rank / blocks_m / blocks_n;
  }
  __device__ __forceinline__ u32 rank_of(int its_m, int its_n, int its_k) const {
    return (its_k * blocks_n + its_n) * blocks_m + its_m;
  }
  /// The number of this cluster, of those of the grid.
  __device__ __forceinline__ int cluster() const { return int(ptx::block_index()) / blocks; }

  /// Blocks with the same rows of A, or columns of B, a bit each.
  __device__ __forceinline__ u16 sharers_of_a() const { return u16(row_of(*this)); }
  __device__ __forceinline__ u16 sharers_of_b() const { return u16(((1u << blocks_m) - 1) << rank_of(0, n, k)); }

  /// The blocks that this one shares an operand with, itself included, in some order.
  __device__ __forceinline__ int sharers() const { return blocks_m + blocks_n - 1; }
  __device__ __forceinline__ u32 sharer(int i) const {
    const int other_n = i - blocks_m;
    return i < blocks_m ? rank_of(i, n, k) : rank_of(m, other_n + (other_n >= n), k);
  }
};

/// One block's part of a cluster's work that the scheduler gave last, found before the wait for its operands.
__device__ __forceinline__ WorkTile tile_of(const Arguments& args, const Scheduler& scheduler, const Work& work,
                                            const ClusterPlace& place) {
  WorkTile tile = work_tile(args, scheduler, work, place);
  ptx::compute_now(tile.row);
  ptx::compute_now(tile.column);
  return tile;
}
__device__ __forceinline__ int k_begin_of(const Work& work, int k) {
  return work.k_begin +
         (CLUSTER_K == 1 ? k * (work.k_end - work.k_begin) : range_begin(work.k_end - work.k_begin, CLUSTER_K, k));
}

}  // namespace jitgemm::device
