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
/// So may columns of the second kind of pairs that are halves.
constexpr bool UPS_BEGIN_ANYWHERE = UP_STEP % 4 != 0;
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

/// The same of one side from D's row (column) `first` on. Of pairs, neighbours lie as they are, and halves are two
/// copies, the second one's COUNT / 2 scales on.
template <int COUNT, bool ANYWHERE, int FOLD, bool APART = FOLD == 2 && ARE_HALVES>
struct SideCopies : ScaleCopies<COUNT, ANYWHERE> {
  __device__ __forceinline__ SideCopies(const float* scales, i64 ld, int first, int)
      : ScaleCopies<COUNT, ANYWHERE>(scales, ld, first * FOLD) {}
};
template <int COUNT, bool ANYWHERE>
struct SideCopies<COUNT, ANYWHERE, 2, true> {
  ScaleCopies<COUNT / 2, false> gates;
  ScaleCopies<COUNT / 2, UPS_BEGIN_ANYWHERE> ups;
  u32 bytes;

  __device__ __forceinline__ SideCopies(const float* scales, i64 ld, int first, int half)
      : gates(scales, ld, first), ups(scales, ld, half + first), bytes(gates.bytes + ups.bytes) {}
  __device__ __forceinline__ void copy(u32 to, u32 barrier, int k) const {
    gates.copy(to, barrier, k);
    ups.copy(to + COUNT / 2 * 4, barrier, k);
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
  SideCopies<BLOCK_M, ROWS_BEGIN_ANYWHERE, ROW_FOLD> a;
  SideCopies<BLOCK_N, COLUMNS_BEGIN_ANYWHERE, COLUMN_FOLD> b;
  u32 bytes;  // of a stage

  __device__ __forceinline__ TileScales(const Arguments& args, const WorkTile& tile)
      : TileScales(args, block_scales_layout(args), tile, tile_in_d(tile), half_of_pairs(args)) {}
  __device__ __forceinline__ TileScales(const Arguments& args, const BlockScalesLayout& layout, const WorkTile& tile,
                                        const WorkTile& in_d, int half)
      : a(block_scales_of_a(args, tile), layout.ld_scale_a, layout.first_a + in_d.row, half),
        b(block_scales_of_b(args, tile), layout.ld_scale_b, layout.first_b + in_d.column, half),
        bytes((SCALING_A == Scaling::block_1x128 ? a.bytes : 0) + (SCALING_B == Scaling::block_1x128 ? b.bytes : 0)) {}

  __device__ __forceinline__ void copy(const SharedMemory& smem, int stage, u32 barrier, int k) const {
    if constexpr (SCALING_A == Scaling::block_1x128) a.copy(smem.scales_a(stage), barrier, k);
    if constexpr (SCALING_B == Scaling::block_1x128) b.copy(smem.scales_b(stage), barrier, k);
  }
};

/// Of COUNT blocks of rows (columns), the scales of 32 k-blocks, a lane each, from the first one of a pass on.
template <int COUNT>
class ScalesAlongK {
  const float* blocks[COUNT];  // of each, the first k-block's
  float held[COUNT], next[COUNT];
  int k, last, lane;

  __device__ __forceinline__ float load(int i, int first) const {
    return ptx::ld_global<float>(blocks[i] + min_of(first + lane, last));
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
    for (int i = 0; i < COUNT; ++i) {
      blocks[i] = scales + block_of(i) * ld;
      held[i] = load(i, k);
    }
  }
  /// Begins a pass of so many k-blocks: those of the one behind it are on their way meanwhile.
  __device__ __forceinline__ void begin_pass(int k_blocks) {
    k += k_blocks;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) next[i] = load(i, k);
  }
  __device__ __forceinline__ void end_pass() {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) held[i] = next[i];
  }
  __device__ __forceinline__ float get(int i, int k_block) const { return ptx::shuffle(held[i], u32(k_block)); }
};

/// Those of a thread's part of a fragment of DOWN blocks, for one k-block after the other: none, if there are no such.
template <bool ANY, typename Fragment, int DOWN>
struct BlockScales {
  struct Factors {};
  __device__ __forceinline__ BlockScales(const Arguments&, const WorkTile&, u32, int, int, int) {}
};
template <typename Fragment, int DOWN>
class BlockScales<true, Fragment, DOWN> {
 public:
  using Factors = BlockFactors<Fragment, 1>;

 private:
  // Of rows that are pairs, those of the second kind may lie in another block, or in two.
  static constexpr int UP_BLOCKS_OF_A = ROW_FOLD == 1 || !ARE_HALVES ? 0 : UP_STEP % (64 / ROW_FOLD) == 0 ? 1 : 2;
  static constexpr int BLOCKS_OF_A = 1 + UP_BLOCKS_OF_A, ROWS = 64 / ROW_FOLD;  // of D, of each 64

  ScalesAlongK<DOWN * BLOCKS_OF_A> blocks_of_a;
  ScalesAlongK<Factors::COLUMN_BLOCKS + Factors::UP_BLOCKS> blocks_of_b;
  u32 own_rows, own_columns;  // bytes from a stage's first
  u32 own_ups;                // of the second kind, where these lie elsewhere
  u32 in_second;              // of each 64 rows a bit: the second kind's second block has the thread's
  int begin;                  // of the tile in its first block of columns
  int second_block;           // Factors'

  /// Of all rows of A, the one that has the ith scale.
  static __device__ __forceinline__ int row_of_a(int i, int first, int row, int last, int half) {
    const int kind = i % BLOCKS_OF_A, its = row + i / BLOCKS_OF_A * ROWS + (kind == 2 ? ROWS - 1 : 0);
    const int in_range = first + min_of(its, last);
    return ROW_FOLD == 1 ? in_range : place_of_pair(in_range, kind > 0, half);
  }

  __device__ __forceinline__ void begin_rows(const Arguments& args, const BlockScalesLayout& layout,
                                             const WorkTile& tile, int row, int first_k, int k_blocks, u32 thread) {
    const int last = tile.row_end - 1, half = half_of_pairs(args);
    blocks_of_a.begin(
        block_scales_of_a(args, tile), layout.ld_scale_a,
        [&](int i) { return row_of_a(i, layout.first_a, row, last, half) / SCALE_EXTENT; }, first_k, k_blocks, thread);
    if constexpr (UP_BLOCKS_OF_A == 2) {
      in_second = 0;
#pragma unroll
      for (int down = 0; down < DOWN; ++down) {
        const int begin = half + layout.first_a + row + down * ROWS,
                  own = begin + int(thread / 32 * 8 + thread % 32 / 4);
        in_second |= u32(own / SCALE_EXTENT != begin / SCALE_EXTENT) << down;
      }
    }
  }

  __device__ __forceinline__ void begin_columns(const Arguments& args, const BlockScalesLayout& layout,
                                                const WorkTile& tile, const Fragment& fragment, int first_k,
                                                int k_blocks, u32 thread) {
    const int half = half_of_pairs(args);
    const auto column_of_b = [&](int i) {
      const bool up = i >= Factors::COLUMN_BLOCKS;
      const int its = tile.column + (up ? i - Factors::COLUMN_BLOCKS : i) * Factors::EXTENT;
      const int in_range = layout.first_b + min_of(its, tile.column_end - 1);
      return COLUMN_FOLD == 1 ? in_range : place_of_pair(in_range, up, half);
    };
    blocks_of_b.begin(
        block_scales_of_b(args, tile), layout.ld_scale_b, [&](int i) { return column_of_b(i) / SCALE_EXTENT; }, first_k,
        k_blocks, thread);
    if constexpr (COLUMN_FOLD == 2 && !UPS_BEGIN_BLOCKS)
      second_block = SCALE_EXTENT - (half + layout.first_b + tile.column) % SCALE_EXTENT - fragment.first_column;
  }

 public:
  /// Of a consumer's rows, from `row` of the launch's D on, of a tile of D, from a k-block on. They are `first_row`
  /// rows of the product behind the tile's first.
  __device__ __forceinline__ BlockScales(const Arguments& args, const WorkTile& tile, u32 thread, int row,
                                         int first_row, int first_k) {
    const BlockScalesLayout& layout = block_scales_layout(args);
    const int first_column = layout.first_b + tile.column;
    begin = first_column % Factors::EXTENT;
    ptx::compute_now(begin);
    const int k_blocks = ceil_div(args.k, SCALE_EXTENT);
    const Fragment fragment(thread / 32, thread % 32);
    const auto ups_from = [&](int count, int first) {
      return u32(count / 2 + before_in_chunk<UPS_BEGIN_ANYWHERE>(half_of_pairs(args) + first)) * 4;
    };
    if constexpr (!Factors::OF_EACH_ROW) {
      begin_rows(args, layout, tile, row, first_k, k_blocks, thread);
    } else if constexpr (ROW_FOLD == 1) {
      own_rows = (before_in_chunk<ROWS_BEGIN_ANYWHERE>(tile.row) + first_row + fragment.first_row) * 4;
    } else {
      own_rows = (first_row / 2 + thread / 32 * 8 + thread % 32 / 4) * (ARE_HALVES ? 4 : 8);
      own_ups = own_rows + ups_from(BLOCK_M, layout.first_a + tile.row);
    }
    if constexpr (!Factors::OF_EACH_COLUMN) {
      begin_columns(args, layout, tile, fragment, first_k, k_blocks, thread);
    } else if constexpr (COLUMN_FOLD == 1) {
      own_columns = (before_in_chunk<COLUMNS_BEGIN_ANYWHERE>(tile.column) + fragment.first_column) * 4;
    } else {
      own_columns = fragment.first_column * (ARE_HALVES ? 4 : 8);
      own_ups = own_columns + ups_from(BLOCK_N, first_column);
    }
  }

  /// Begins a pass of so many k-blocks.
  __device__ __forceinline__ void begin_pass(int k_blocks) {
    if constexpr (!Factors::OF_EACH_ROW) blocks_of_a.begin_pass(k_blocks);
    if constexpr (!Factors::OF_EACH_COLUMN) blocks_of_b.begin_pass(k_blocks);
  }
  __device__ __forceinline__ void end_pass() {
    if constexpr (!Factors::OF_EACH_ROW) blocks_of_a.end_pass();
    if constexpr (!Factors::OF_EACH_COLUMN) blocks_of_b.end_pass();
  }
  /// Of the pass's ith k-block, those of blocks of rows and of columns: a set for each 64 rows.
  template <int WIDTH, int MMAS>
  __device__ __forceinline__ void load_of_blocks(int i, Factors (&factors)[MMAS]) const {
    if constexpr (!Factors::OF_EACH_ROW) load_rows(0, i, factors);
    if constexpr (!Factors::OF_EACH_COLUMN) load_columns<WIDTH>(0, i, factors);
  }
  /// Of one in a stage, those of each row, and of each of the first WIDTH columns.
  template <int MMAS>
  __device__ __forceinline__ void load_of_each_row(const SharedMemory& smem, int stage,
                                                   Factors (&factors)[MMAS]) const {
    if constexpr (Factors::OF_EACH_ROW) load_rows(smem.scales_a(stage), 0, factors);
  }
  template <int WIDTH, int MMAS>
  __device__ __forceinline__ void load_of_each_column(const SharedMemory& smem, int stage,
                                                      Factors (&factors)[MMAS]) const {
    if constexpr (Factors::OF_EACH_COLUMN) load_columns<WIDTH>(smem.scales_b(stage), 0, factors);
  }

  /// Once the k-block's products of the WIDTH columns from FIRST on are there. Scales that are multiplied earlier, as
  /// ptxas would have it, hold back the wgmma behind them.
  template <int FIRST, int WIDTH, int COUNT>
  __device__ __forceinline__ void add(Factors& factors, const Accumulator (&of_block)[COUNT],
                                      Accumulator (&sums)[COUNT]) const {
#pragma unroll
    for (float& scale : factors.a) ptx::compute_now(scale);
#pragma unroll
    for (int i = 0; i < Factors::template of_b<FIRST + WIDTH>(); ++i) ptx::compute_now(factors.b[i]);
    factors.template add<FIRST, WIDTH>(begin, of_block, sums);
  }

 private:
  __device__ __forceinline__ void load_rows(u32 scales, int k_block, int down, Factors& factors) const {
    if constexpr (Factors::OF_EACH_ROW && ROW_FOLD == 1) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        ptx::ld_shared(scales + own_rows + Fragment(0, 0).row_of(down, half) * 4, factors.a[half]);
    } else if constexpr (Factors::OF_EACH_ROW && ARE_HALVES) {
      ptx::ld_shared(scales + own_rows + down * ROWS * 4, factors.a[0]);
      ptx::ld_shared(scales + own_ups + down * ROWS * 4, factors.a[1]);
    } else if constexpr (Factors::OF_EACH_ROW) {
      ptx::ld_shared_v2(scales + own_rows + down * ROWS * 8, factors.a);
    } else {
      const int block = down * BLOCKS_OF_A;
      factors.a[0] = blocks_of_a.get(block, k_block);
      if constexpr (ROW_FOLD == 2)
        factors.a[1] = UP_BLOCKS_OF_A == 0 ? factors.a[0] : blocks_of_a.get(block + 1, k_block);
      if constexpr (UP_BLOCKS_OF_A == 2) {
        const float second = blocks_of_a.get(block + 2, k_block);
        if (in_second >> down & 1) factors.a[1] = second;
      }
    }
  }

  template <int MMAS>
  __device__ __forceinline__ void load_rows(u32 scales, int i, Factors (&factors)[MMAS]) const {
#pragma unroll
    for (int down = 0; down < MMAS; ++down) load_rows(scales, i, down, factors[down]);
  }
  template <int WIDTH, int MMAS>
  __device__ __forceinline__ void load_columns(u32 scales, int i, Factors (&factors)[MMAS]) const {
    load_columns<WIDTH>(scales, i, factors[0]);
#pragma unroll
    for (int down = 1; down < MMAS; ++down) factors[down].copy_columns(factors[0]);
  }
  template <int WIDTH>
  __device__ __forceinline__ void load_columns(u32 scales, int k_block, Factors& factors) const {
    factors.second_block = second_block;
    if constexpr (!Factors::OF_EACH_COLUMN) {
#pragma unroll
      for (int i = 0; i < Factors::OF_B; ++i) factors.b[i] = blocks_of_b.get(i, k_block);
    } else if constexpr (COLUMN_FOLD == 2 && !ARE_HALVES) {
#pragma unroll
      for (int number = 0; number < Factors::PAIRS; number += 2) {
        float both[4];  // of two gates, each with its up behind it
        ptx::ld_shared_v4(scales + own_columns + number * (8 * 4), both);
#pragma unroll
        for (int i = 0; i < 4; ++i) factors.b[2 * number + i % 2 * 2 + i / 2] = both[i];
      }
    } else {
#pragma unroll
      for (int number = 0; number < Factors::template pairs<WIDTH>(); ++number) {
        const bool up = COLUMN_FOLD == 2 && number % 2 == 1;
        const u32 from = scales + (up ? own_ups : own_columns) + Fragment::first_column_of(number / COLUMN_FOLD) * 4;
        if (COLUMNS_BEGIN_ANYWHERE || (up && UPS_BEGIN_ANYWHERE)) {  // so does a pair
          ptx::ld_shared(from, factors.b[2 * number]);
          ptx::ld_shared(from + 4, factors.b[2 * number + 1]);
        } else {
          ptx::ld_shared_v2(from, reinterpret_cast<float(&)[2]>(factors.b[2 * number]));
        }
      }
    }
  }
};

}  // namespace jitgemm::device
