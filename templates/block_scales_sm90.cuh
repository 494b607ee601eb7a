// Scales of blocks in the Hopper loop. Those of rows and of columns, BLOCK_M or BLOCK_N beside each other for each 128
// of k, come into the ring with the k-block that they scale. Of those for 128 rows or columns a tile has one to three
// for each k-block, side by side along k: a warp loads 32 k-blocks' at once, a lane each, and passes them around.
#pragma once
#include "arguments.cuh"
#include "block_scales.cuh"
#include "ide_sm90.cuh"
#include "layout_sm90.cuh"
#include "ptx/global.cuh"
#include "ptx/shared.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

static_assert(!HAS_BLOCK_SCALES || BLOCK_K == SCALE_EXTENT);

/// Offsets let a group begin at any row, and a bulk copy begins at a multiple of 16 bytes, of four rows' scales: what
/// is copied begins at the one before and is four longer, and consumers read it from as many on as the tile begins
/// behind it. So that is one copy as of any other tile, and never beyond what a matrix of all groups' rows has.
constexpr bool ROWS_BEGIN_ANYWHERE = GROUPING == Grouping::offsets && !SWAP_AB,
               COLUMNS_BEGIN_ANYWHERE = GROUPING == Grouping::offsets && SWAP_AB;
template <bool ANYWHERE>
__device__ __forceinline__ int before_in_chunk(int row) {
  return ANYWHERE ? int(u32(row) % 4) : 0;
}

/// COUNT scales of rows (columns) of a tile, which a producer copies for one k-block after the other: of these, as many
/// as there are.
template <int COUNT, bool ANYWHERE>
struct ScaleCopies {
  static constexpr int MOST = ANYWHERE ? COUNT + 4 : COUNT;

  const float* first;
  i64 ld;
  u32 bytes;

  __device__ __forceinline__ ScaleCopies(const float* scales, i64 its_ld, int first_row) : ld(its_ld) {
    first_row -= before_in_chunk<ANYWHERE>(first_row);
    first = scales + first_row;
    bytes = u32(max_of(0, int(min_of(i64(MOST), ld - first_row)))) * 4;
  }
  __device__ __forceinline__ void copy(u32 to, u32 barrier, int k) const {
    if (bytes > 0) ptx::bulk_load(to, first + k * ld, bytes, barrier);
  }
};

/// What the producer copies into a tile's stages besides A and B: nothing, if there are no such scales.
template <bool ANY>
struct TileScales {
  static constexpr u32 bytes = 0;
  __device__ __forceinline__ TileScales(const Arguments&, const WorkTile&) {}
  __device__ __forceinline__ void copy(const SharedMemory&, int, u32, int) const {}
};
template <>
struct TileScales<true> {
  ScaleCopies<BLOCK_M, ROWS_BEGIN_ANYWHERE> a;
  ScaleCopies<BLOCK_N, COLUMNS_BEGIN_ANYWHERE> b;
  u32 bytes;  // of a stage

  __device__ __forceinline__ TileScales(const Arguments& args, const WorkTile& tile)
      : TileScales(args, block_scales_layout(args), tile) {}
  __device__ __forceinline__ TileScales(const Arguments& args, const BlockScalesLayout& layout, const WorkTile& tile)
      : a(block_scales_of_a(args, tile), layout.ld_scale_a, layout.first_a + tile.row),
        b(block_scales_of_b(args, tile), layout.ld_scale_b, layout.first_b + tile.column),
        bytes((SCALING_A == Scaling::block_1x128 ? a.bytes : 0) + (SCALING_B == Scaling::block_1x128 ? b.bytes : 0)) {}

  __device__ __forceinline__ void copy(const SharedMemory& smem, int stage, u32 barrier, int k) const {
    if constexpr (SCALING_A == Scaling::block_1x128) a.copy(smem.scales_a(stage), barrier, k);
    if constexpr (SCALING_B == Scaling::block_1x128) b.copy(smem.scales_b(stage), barrier, k);
  }
};

/// Of COUNT blocks of rows (columns), the scales of one k-block after the other.
template <int COUNT>
class ScalesAlongK {
  const float* blocks[COUNT];  // of each, the lane's of the first 32 k-blocks
  float held[COUNT];           // of the current 32
  int k, last, lane;

  /// The next 32 are brought near: to hold them in registers, too, the warp would have to wait for them as soon as they
  /// are asked for, since what they are moved to is read in the same loop.
  __device__ __forceinline__ void load(int first) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      held[i] = ptx::ld_global<float>(blocks[i] + min_of(first + lane, last));
      if (first + 32 <= last) ptx::prefetch_l1(blocks[i] + min_of(first + 32 + lane, last));
    }
  }

 public:
  /// `block_of(i)` is the number of block i, of `k_blocks` scales.
  template <typename BlockOf>
  __device__ __forceinline__ void begin(const float* scales, i64 ld, const BlockOf& block_of, int first_k, int k_blocks,
                                        u32 thread) {
    k = first_k;
    last = k_blocks - 1;
    lane = int(thread % 32);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) blocks[i] = scales + block_of(i) * ld;
    load(int(u32(k) / 32 * 32));
  }
  __device__ __forceinline__ float get(int i) const { return ptx::shuffle(held[i], u32(k) % 32); }
  /// To the next k-block.
  __device__ __forceinline__ void advance() {
    if (u32(++k) % 32 == 0) load(k);
  }
};

/// Those of a thread's part of a fragment of DOWN blocks, for one k-block after the other: none, if there are no such.
template <bool ANY, typename Fragment, int DOWN>
struct BlockScales {
  __device__ __forceinline__ BlockScales(const Arguments&, const WorkTile&, u32, int, int, int) {}
};
template <typename Fragment, int DOWN>
class BlockScales<true, Fragment, DOWN> {
  using Factors = BlockFactors<Fragment, 1>;

  ScalesAlongK<DOWN> blocks_of_a;
  ScalesAlongK<Factors::COLUMN_BLOCKS> blocks_of_b;
  u32 own_rows, own_columns;  // bytes from a stage's first
  int first_column;           // of the tile, in all of D
  Factors factors;

 public:
  /// Of a consumer's rows, from `row` of the launch's D on, of a tile, from a k-block on.
  __device__ __forceinline__ BlockScales(const Arguments& args, const WorkTile& tile, u32 thread, int row,
                                         int first_row, int first_k) {
    const BlockScalesLayout& layout = block_scales_layout(args);
    first_column = layout.first_b + tile.column;
    const int k_blocks = ceil_div(args.k, SCALE_EXTENT);
    const Fragment fragment(thread / 32, thread % 32);
    if constexpr (Factors::OF_EACH_ROW)
      own_rows = (before_in_chunk<ROWS_BEGIN_ANYWHERE>(tile.row) + first_row + fragment.first_row) * 4;
    else
      blocks_of_a.begin(
          block_scales_of_a(args, tile), layout.ld_scale_a,
          [&](int i) { return (layout.first_a + min_of(row + i * 64, tile.row_end - 1)) / SCALE_EXTENT; }, first_k,
          k_blocks, thread);
    if constexpr (Factors::OF_EACH_COLUMN)
      own_columns = (before_in_chunk<COLUMNS_BEGIN_ANYWHERE>(tile.column) + fragment.first_column) * 4;
    else
      blocks_of_b.begin(
          block_scales_of_b(args, tile), layout.ld_scale_b,
          [&](int i) {
            return (layout.first_b + min_of(tile.column + i * SCALE_EXTENT, tile.column_end - 1)) / SCALE_EXTENT;
          },
          first_k, k_blocks, thread);
  }

  /// Those of the next k-block, which is in a stage.
  __device__ __forceinline__ void load(const SharedMemory& smem, int stage, int down) {
    if constexpr (Factors::OF_EACH_ROW) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        ptx::ld_shared(smem.scales_a(stage) + own_rows + Fragment(0, 0).row_of(down, half) * 4, factors.a[half]);
    } else {
      factors.a[0] = blocks_of_a.get(down);
      if (down == DOWN - 1) blocks_of_a.advance();
    }
    if (down > 0) return;
    if constexpr (Factors::OF_EACH_COLUMN) {
#pragma unroll
      for (int number = 0; number < Factors::PAIRS; ++number) {
        const u32 from = smem.scales_b(stage) + own_columns + Fragment::first_column_of(number) * 4;
        if constexpr (COLUMNS_BEGIN_ANYWHERE) {  // so does a pair
          ptx::ld_shared(from, factors.b[2 * number]);
          ptx::ld_shared(from + 4, factors.b[2 * number + 1]);
        } else {
          ptx::ld_shared_v2(from, reinterpret_cast<float(&)[2]>(factors.b[2 * number]));
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < Factors::COLUMN_BLOCKS; ++i) factors.b[i] = blocks_of_b.get(i);
      blocks_of_b.advance();
    }
  }

  /// Once the k-block's products are there. Scales that are multiplied earlier, as ptxas would have it, hold back the
  /// wgmma behind them.
  template <int COUNT>
  __device__ __forceinline__ void add(const Accumulator (&of_block)[COUNT], Accumulator (&sums)[COUNT]) {
#pragma unroll
    for (float& scale : factors.a) ptx::compute_now(scale);
#pragma unroll
    for (float& scale : factors.b) ptx::compute_now(scale);
    factors.add(first_column, of_block, sums);
  }
};

}  // namespace jitgemm::device
