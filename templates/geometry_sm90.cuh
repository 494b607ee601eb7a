// The Hopper main loop's geometry: how a tile is dealt out to consumer warpgroups and to the CTAs of a cluster, what
// lies in shared memory, by which boxes TMA stores D, and which configurations there are.
#ifndef JITGEMM_GEOMETRY_SM90_CUH
#define JITGEMM_GEOMETRY_SM90_CUH
#include "geometry.cuh"
#include "schedule.cuh"

namespace jitgemm::device::sm90 {

struct Geometry {
  int consumers, threads;  // warpgroups that multiply; with the producer warpgroup
  int consumer_rows;       // of the tile, for one consumer
  int accumulators;        // of a thread
  int rows_promoted;       // of a consumer, whose products of a k-block a thread holds at a time beside these
  int k_blocks_promoted;   // whose products a thread holds at a time, where its consumer has 64 rows
  int columns_promoted;    // of the tile, for one wgmma: half of them, and the first are added while others are made
  int ctas_per_sm;         // by registers
  int arriving_groups;     // of warps, that count their arrival at a split tile apart
  int cluster;             // CTAs
  int a_bytes, b_bytes, stage_bytes;
  int a_part, b_part;  // rows in memory: what each block fetches of A, of B, for those that share it
  int a_box, b_box;    // of these, rows of a TMA box
  int scale_a_bytes,
      scale_bytes;  // of a stage: scales of blocks of k, those of A's rows, and of B's columns behind them
  // D leaves a CTA in epilogue subtiles of 64 rows x 128 bytes, 32 rows where these are pairs: each by one or more TMA
  // boxes whose width (with swap_ab: whose height) divides the CTA's columns, or whole ones by a box each, and a
  // narrower last one by copies of the threads.
  int store_columns;    // of D, for one CTA
  int subtile_columns;  // of those, at a time
  bool tma_store;       // else by ordinary stores
  bool d_in_ring;       // D's stages are what its consumer had of A, when nothing is loaded any more
  int d_stages;         // of each consumer
  int d_box_bytes;      // across, of a row in memory
  int d_box_rows;       // rows in memory
  int queue_bytes;      // of the tiles that the producer fetches for the consumers
  int mover_bytes;      // barriers of the warps that take tiles to other ranks
  int turn_bytes;       // barriers by which consumers take turns to multiply
  int smem_bytes;
};

constexpr int d_stage_bytes = 64 * 128;  // of D's way out: also what 64 rows of A take of a k-block
constexpr int queue_slots = 2, queue_slot_bytes = 32;
constexpr int smem_align = 1024;  // of the 128-byte swizzle's pattern, 8 rows

/// Of rows that so many blocks share, those that each fetches: whole patterns of the swizzle. What they come to beyond
/// the rows there are lies in the stage unused.
constexpr int part_of_rows(int rows, int sharers, int fold = 1) {
  const int step = 8 * fold;
  return ceil_div(ceil_div(rows, max_of(1, sharers)), step) * step;
}

/// Rows of a box of groups' rows, of which a block fetches so many for all that share them. Several boxes, so that few
/// rows are loaded behind a group's end; of 32 they were slower where nobody shares them, by 3 % (NOTES.md, 66).
constexpr int group_box(int rows, int sharers) {
  const int most = sharers > 1 ? 32 : 64;
  int box = rows;
  for (int count = 2; box > most; ++count)
    if (rows % (8 * count) == 0) box = rows / count;
  return box;
}

constexpr int consumer_rows(int block_m, int warps, bool ping_pong) {
  return ping_pong ? block_m : block_m / max_of(1, warps / 4);
}

/// The most accumulators that a thread holds: one of two consumers has 232 registers, of three 160, of which ptxas uses
/// 128.
constexpr int most_accumulators(int warps) { return warps == 12 ? 96 : warps == 8 ? 168 : 128; }

/// The most that a thread holds of sums, of the k-block's products that are added to them, and of scales of columns.
constexpr int most_promoting(int warps) { return warps == 12 ? 128 : warps == 8 ? 200 : 224; }

/// The narrowest half of a tile that is multiplied apart: of less, A's rows take wgmma longer than their products.
constexpr int least_half = 96;

/// What promotion takes beside a thread's sums, of so many rows at a time.
constexpr int promoting(const KernelParameters& p, int rows) {
  return rows * p.block_n / 128 + (p.column_scales ? p.block_n / 4 : 0);
}

/// The widest tile that a wgmma and the registers allow, where promotion takes 64 rows at a time.
constexpr int widest_tile(KernelParameters p) {
  const int rows = consumer_rows(p.block_m, p.warps, p.ping_pong);
  p.block_n = 128;
  const int widest = most_accumulators(p.warps) * 128 / rows;
  const int promoted = p.promoted ? most_promoting(p.warps) * 128 / (rows + promoting(p, 64)) : 256;
  return min_of(256, min_of(widest, promoted));
}

/// A box's width for rows of D of so many bytes, which are 0 where TMA stores none. A row of a box takes TMA as long as
/// 64 bytes, however short it is (NOTES.md, 59), so where only narrower boxes divide the rows, a box is a whole
/// subtile; but what goes to other ranks leaves by TMA alone.
constexpr int d_box_bytes(const KernelParameters& p, int row_bytes) {
  if (p.swap_ab) return min_of(128, 64 / p.row_fold() * p.size_d);
  const int divisor = common_divisor(128, row_bytes);
  return divisor >= 64 || divisor == row_bytes || p.scatters_d ? divisor : 128;
}

constexpr Geometry geometry(const KernelParameters& p) {
  Geometry g{};
  g.consumers = max_of(1, p.warps / 4);
  g.threads = 128 * (1 + g.consumers);
  g.consumer_rows = consumer_rows(p.block_m, p.warps, p.ping_pong);
  g.accumulators = g.consumer_rows * p.block_n / 128;
  // All at once, if they fit: then some are added while others are made.
  const bool all_at_once = g.accumulators + promoting(p, g.consumer_rows) <= most_promoting(p.warps);
  g.rows_promoted = all_at_once || !p.promoted ? g.consumer_rows : 64;
  g.ctas_per_sm = g.consumers == 1 && g.accumulators <= (p.promoted ? 48 : 64) ? 2 : 1;
  // Two, if they fit and leave the producer as many stages.
  const int room = (g.ctas_per_sm == 2 ? 96 : most_promoting(p.warps)) - (promoting(p, 64) - p.block_n / 2);
  g.k_blocks_promoted = p.promoted && g.consumer_rows == 64 && g.accumulators * 3 <= room && p.stages >= 4 ? 2 : 1;
  const int half = p.block_n / 2;
  const bool in_halves = p.block_scales && p.b_k_major && !p.narrows && g.rows_promoted == 64 &&
                         g.k_blocks_promoted == 1 && half % 16 == 0 && half >= least_half;
  g.columns_promoted = in_halves ? half : p.block_n;
  g.arriving_groups = p.ping_pong ? 1 : g.consumers;
  g.cluster = p.cluster_m * p.cluster_n * p.cluster_k;

  // TMA boxes are 128 bytes wide and swizzled. A K-major tile is one box of block_m (block_n) rows, of groups' rows
  // several; an M-major (N-major) tile, of 16-bit elements, is a box of block_k rows for each 64 of M (N), the last one
  // whole. Blocks that share a tile fetch a part of these rows each.
  g.a_part = p.a_k_major ? part_of_rows(p.block_m, p.cluster_n, p.row_fold()) : part_of_rows(p.block_k, p.cluster_n);
  g.b_part = p.b_k_major ? part_of_rows(p.block_n, p.cluster_m, p.column_fold()) : part_of_rows(p.block_k, p.cluster_m);
  g.a_box = p.groups_of_rows && !p.swap_ab ? group_box(g.a_part, p.cluster_n) : g.a_part;
  g.b_box = p.groups_of_rows && p.swap_ab ? group_box(g.b_part, p.cluster_m) : g.b_part;
  g.a_bytes = (p.a_k_major ? g.a_part * max_of(1, p.cluster_n) : p.block_m) * p.block_k * p.size_a;
  g.b_bytes = (p.b_k_major ? g.b_part * max_of(1, p.cluster_m) : ceil_div(p.block_n, 64) * 64) * p.block_k * p.size_a;
  g.stage_bytes = g.a_bytes + g.b_bytes;
  const int before_rows = p.offset_groups ? 16 : 0;  // scales that come with those of a tile that begins anywhere
  const int before_ups = p.pairs ? 16 : 0;
  g.scale_a_bytes = p.row_scales ? p.block_m * 4 + (p.swap_ab ? before_ups : before_rows) : 0;
  g.scale_bytes = g.scale_a_bytes + (p.column_scales ? p.block_n * 4 + (p.swap_ab ? before_rows : before_ups) : 0);

  g.store_columns = p.block_n / p.column_fold() / max_of(1, p.cluster_k);
  g.subtile_columns = min_of(128 / p.size_d, g.store_columns);
  const int row_bytes = g.store_columns * p.size_d;
  g.tma_store = p.align_d == 16 && (p.swap_ab || row_bytes % 16 == 0);  // TMA clips a row at 16 bytes
  g.d_box_bytes = d_box_bytes(p, g.tma_store ? row_bytes : 0);
  g.d_box_rows = p.swap_ab ? common_divisor(g.subtile_columns, g.store_columns) : 64;

  g.d_in_ring = p.one_tile && p.cluster_k == 1;  // else the next tile's k-blocks, or partial sums, lie there
  g.d_stages = g.d_in_ring ? p.stages * (g.consumer_rows / 64) : 2;

  const int barriers = (p.stages + 1) * 16;  // a pair a stage, and one of ping-pong's turns or of a cluster's sums
  g.queue_bytes = p.fetches ? queue_slots * queue_slot_bytes : 0;
  g.mover_bytes = p.scatters_d ? g.consumers * 16 : 0;
  // Of three consumers, which promote one k-block at a time, it saves 2 % that they multiply in turns (NOTES.md, 44).
  // Of 64 rows alone: a consumer of 128, of which a group may leave 64, would take one turn where others take two.
  const bool gains = p.block_scales && !p.column_scales && g.consumer_rows == 64 && g.consumers == 3;
  g.turn_bytes = gains && !p.ping_pong ? g.consumers * 8 : 0;
  g.smem_bytes = p.stages * (g.stage_bytes + g.scale_bytes) +
                 (g.d_in_ring ? 0 : g.consumers * g.d_stages * d_stage_bytes) + barriers + g.queue_bytes +
                 g.mover_bytes + g.turn_bytes + smem_align;
  return g;
}

/// The kernel, as it is made, of a cluster that its launch chooses.
constexpr KernelParameters alone(KernelParameters p) {
  p.cluster_m = p.cluster_n = 1;
  return p;
}

/// The rule that the parameters break, null if none.
constexpr const char* broken_rule(const KernelParameters& p) {
  if (!are_in_range(p)) return "tile, stages and warps are in 1..1024";
  if (!p.tensor_cores || p.size_a == 8) return "wgmma does not multiply f32 or f64";
  if (p.size_a != 2 && (!p.a_k_major || !p.b_k_major))
    return "wgmma takes operands other than f16 and bf16 K-major alone: A row-major, B column-major";
  if (p.block_k * p.size_a != 128) return "block_k is 128 bytes: one swizzled row";
  if (p.warps != 4 && p.warps != 8 && p.warps != 12) return "warps are those of one to three consumer warpgroups";
  if (p.ping_pong && p.warps != 8) return "ping-pong has two consumer warpgroups";
  const int rows = consumer_rows(p.block_m, p.warps, p.ping_pong);
  if (p.block_m % (p.ping_pong ? 1 : p.warps / 4) != 0 || (rows != 64 && rows != 128 && rows != 192))
    return "a consumer warpgroup has 64, 128 or 192 rows";
  if (p.block_n < 16 || p.block_n % (p.size_a == 1 ? 16 : 8) != 0 || p.block_n > 256)
    return "block_n is a multiple of 8, of 8-bit operands 16, in 16..256";
  if (rows * p.block_n / 128 > most_accumulators(p.warps))
    return "a thread holds at most 128 accumulators, 168 with two consumer warpgroups, 96 with three";
  if (p.promoted && rows * p.block_n / 128 + promoting(p, 64) > most_promoting(p.warps))
    return "a thread that promotes holds at most 224 accumulators with those of a k-block's 64 rows and scales of "
           "columns, 200 with two consumer warpgroups, 128 with three";
  if (p.block_scales && !p.promoted) return "scales of blocks are for promoted sums";
  if (p.column_scales && p.block_n > (p.warps == 12 ? 64 : 128))
    return "with a scale for each column and 128 of k block_n is 128 at most, 64 with three consumer warpgroups";
  if (p.scales_d && p.swap_ab) return "D's own scales are of rows that a kernel has as such: swap_ab is false";
  if (p.scales_d && p.align_d != 16)
    return "D's own scales go with a D that TMA stores: D and its rows are aligned to 16 bytes";
  if (p.scales_d && p.block_n / max_of(1, p.cluster_k) % 128 != 0)
    return "D's own scales are of whole blocks of 128 columns: block_n is a multiple of 128 cluster_k";
  if (p.scatters_d && (!geometry(p).tma_store || p.swap_ab || p.one_tile || p.cluster_k > 1))
    return "tiles that go to other ranks are stored by TMA, of whole tiles' kernels, without swap_ab and cluster_k";
  if (p.align_a != 16 || p.align_b != 16) return "TMA loads need 16-byte aligned rows";
  if (p.stages < 2 || p.stages > 16) return "at least 2 stages, and 16 at most";
  if (!is_power_of_two(p.cluster_m) || !is_power_of_two(p.cluster_n) || !is_power_of_two(p.cluster_k) ||
      p.cluster_m > 8 || p.cluster_n > 8 || p.cluster_k > 8 || p.cluster_m * p.cluster_n * p.cluster_k > 8)
    return "a cluster is a product of powers of two, of 8 thread blocks at most";
  // What a stage holds is known before.
  if (p.cluster_at_launch &&
      (geometry(p).a_bytes != geometry(alone(p)).a_bytes || geometry(p).b_bytes != geometry(alone(p)).b_bytes))
    return "a cluster that the launch chooses shares whole parts of a K-major operand's 8 rows, of pairs 16: block_m "
           "is "
           "a multiple of 8 cluster_n where A is, block_n of 8 cluster_m where B is; without cluster_at_launch parts "
           "may "
           "come to more";
  if (p.block_n % (8 * p.column_fold()) != 0) return "block_n is a multiple of 16 where its columns are pairs";
  if (geometry(p).a_box > 256 || geometry(p).b_box > 256) return "a TMA box has at most 256 rows";
  if (p.cluster_k > 1) {
    if (!(p.one_tile || p.split_k) || p.ping_pong)
      return "clusters that split k are data-parallel or split_k, and cooperative";
    if (p.block_n % (8 * p.column_fold() * p.cluster_k) != 0)
      return "a block of a cluster that splits k adds up a multiple of 8 columns, of pairs 16";
    if (p.block_m * p.block_n * 4 > p.stages * (p.block_m + p.block_n) * 128)
      return "the partial sums of a cluster that splits k fit into the stages";
  }
  return nullptr;
}

}  // namespace jitgemm::device::sm90
#endif
