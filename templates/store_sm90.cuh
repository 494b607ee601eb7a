// How a consumer warpgroup's rows of D leave its registers: through shared memory, an epilogue subtile at a time, by
// TMA, or where TMA cannot address D by whole rows of a warp.
#pragma once
#include "arguments.cuh"
#include "epilogue.cuh"
#include "fragment.cuh"
#include "groups.cuh"
#include "ide.cuh"
#include "layout_sm90.cuh"
#include "operands_ahead.cuh"
#include "own_scales.cuh"
#include "ptx/barrier.cuh"
#include "ptx/convert.cuh"
#include "ptx/global.cuh"
#include "ptx/shared.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/tma.cuh"
#include "staged_matrices.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

__device__ __forceinline__ u32 bits(float x) { return __builtin_bit_cast(u32, x); }
__device__ __forceinline__ u32 bits(int x) { return u32(x); }

// Else D's edges are seen to on the way out of shared memory, and one store does for all tiles: a quarter of the
// compile time.
constexpr bool EDGES_DIFFER = LOADS_BY_ELEMENT || HAS_OWN_SCALES || !THROUGH_SHARED;

/// Finishes the subtile from (row, column) on, as far as it is the block's, and leaves it in the stage. `first` is the
/// index of the thread's first accumulator; `groups` are of 8 columns; `operands` are the subtile's.
template <bool INTERIOR, typename ItsEpilogue, typename T = ElementD>
__device__ __forceinline__ void fill_stage(const ItsEpilogue& epilogue, u32 stage, u32 consumer, u32 thread, int row,
                                           int column, int first, int groups, const SubtileOperands& operands,
                                           const Accumulator (&accumulators)[STORE_COUNT]) {
  constexpr int GROUPS = SUBTILE_COLUMNS / 8;
  const u32 warp = thread / 32, lane = thread % 32;
  const SubtileFragment fragment(warp, lane);
  constexpr int HALVES = SubtileFragment::HALVES, UP = SubtileFragment::UP, OF_GROUP = 4 * COLUMN_FOLD;
  StagedPairs pairs;
  const StagedSubtile subtile{epilogue.args, epilogue.tile, warp, lane, row, column, groups};
  if constexpr (STAGES_INPUTS && ItsEpilogue::FINISHES) subtile.take(operands.chunks, stage, pairs);
  ElementCompute x[GROUPS * OF_GROUP];  // each in the place of its sum
#pragma unroll
  for (int j = 0; j < GROUPS; ++j) {
    NeighbourVectors vectors;
    if (ItsEpilogue::FINISHES && j < groups) operands.vectors.get_columns(epilogue.scales, j, lane, vectors);
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      if (j >= groups) continue;
      const int i = SubtileFragment::sum(0, half, j);
      x[i] = ElementCompute(accumulators[first + i]);
      x[i + 1] = ElementCompute(accumulators[first + i + 1]);
      NeighbourFactors factors;
      if constexpr (ItsEpilogue::FINISHES) {
        operands.vectors.get_rows(epilogue.scales, half, vectors);
        find_factors(epilogue.scales, vectors.scale_a, vectors.scales_b, vectors.ups, factors);
      }
      epilogue.template finish<INTERIOR>(row + fragment.row_of(0, half), column + fragment.column_of(j), factors, x[i],
                                         x[i + 1], ElementCompute(accumulators[first + i + UP]),
                                         ElementCompute(accumulators[first + i + UP + 1]),
                                         StagedPair{pairs, j * 2 + half, vectors});
    }
  }
  if constexpr (STAGES_OUTPUTS) subtile.store(pairs, stage);

  if constexpr (HAS_OWN_SCALES)
    scale_rows(epilogue.args, epilogue.tile, stage, 1 + consumer, thread, fragment, row, column, x);

  if constexpr (sizeof(T) == 2 && ROW_FOLD == 2) {
    // 8 x 8 matrices of a group each, whose rows are neighbouring rows of the stage: lane's is the lane's.
    const u32 own = stage + swizzled_d(lane, warp * 16);
    const auto pair = [&](int group) { return ptx::pack(T{}, x[group * OF_GROUP], x[group * OF_GROUP + 1]); };
#pragma unroll
    for (int j = 0; j < GROUPS; j += 4) {
      const u32 address = own + j * (8 * D_BOX_WIDTH);
      const int rest = groups - j;
      if (rest >= 4) ptx::stmatrix_x4<true>(address, pair(j), pair(j + 1), pair(j + 2), pair(j + 3));
      if (rest == 2 || rest == 3) ptx::stmatrix_x2<true>(address, pair(j), pair(j + 1));
      if (rest == 1) ptx::stmatrix_x1<true>(address, pair(j));
      if (rest == 3) ptx::stmatrix_x1<true>(address + 2 * (8 * D_BOX_WIDTH), pair(j + 2));
    }
  } else if constexpr (sizeof(T) == 2) {
    const auto pair = [&](int group, int i) {
      return ptx::pack(T{}, x[group * OF_GROUP + i], x[group * OF_GROUP + i + 1]);
    };
    const SubtileMatrices matrices(stage, warp, lane);
#pragma unroll
    for (int j = 0; j < GROUPS; j += 2) {
      if (j + 1 < groups)
        ptx::stmatrix_x4<SWAP_AB>(matrices.at(j), pair(j, 0), pair(j, 2), pair(j + 1, 0), pair(j + 1, 2));
      else if (j < groups)
        ptx::stmatrix_x2<SWAP_AB>(matrices.at(j), pair(j, 0), pair(j, 2));
    }
  } else {
#pragma unroll
    for (int j = 0; j < GROUPS; ++j)
#pragma unroll
      for (int half = 0; half < HALVES; ++half) {
        if (j >= groups) continue;
        const int i = SubtileFragment::sum(0, half, j);
        const u32 at_row = fragment.row_of(0, half), at_column = fragment.column_of(j);
        if constexpr (SWAP_AB) {
          const auto to = [&](u32 next) { return stage + swizzled_d(at_column + next, at_row * sizeof(T)); };
          if constexpr (sizeof(T) == 1) {
            const u16 two = ptx::pack(T{}, x[i], x[i + 1]);
            ptx::st_shared_u8(to(0), u8(two));
            ptx::st_shared_u8(to(1), u8(two >> 8));
          } else {
            ptx::st_shared_u32(to(0), bits(x[i]));
            ptx::st_shared_u32(to(1), bits(x[i + 1]));
          }
        } else {
          const u32 to = stage + swizzled_d(at_row, at_column * sizeof(T));
          if constexpr (sizeof(T) == 1)
            ptx::st_shared_u16(to, ptx::pack(T{}, x[i], x[i + 1]));
          else
            ptx::st_shared_v2(to, bits(x[i]), bits(x[i + 1]));
        }
      }
  }
}

/// Copies rows x columns of 16-bit elements from a stage to D's (row, column) on, as far as D reaches: a row a warp at
/// a time, as words of two elements from the row's first 4-byte boundary on.
__device__ __forceinline__ void copy_rows(const Epilogue& epilogue, u32 stage, u32 warp, u32 lane, int row, int column,
                                          int rows, int columns) {
  const Arguments& args = epilogue.args;
  const WorkTile& tile = epilogue.tile;
  rows = min_of(rows, (SWAP_AB ? tile.column_end : tile.row_end) - row);
  columns =
      min_of(columns, (SWAP_AB ? tile.row_end : tile.column_end) - column) - int(lane) * 2;  // from the lane's word on
  const u32 from = stage + swizzled_d(warp, lane * 4), from_next = stage + swizzled_d(warp, (lane + 1) % 32 * 4);
  u16* to = static_cast<u16*>(args.d) + batch_offset(tile.batch, args.stride_d) + (row + int(warp)) * args.ldd +
            column + lane * 2;
#pragma unroll 4
  for (int i = 0; int(warp) + i * 4 < rows; ++i, to += 4 * args.ldd) {
    const u32 swizzle = i % 2 * 64;  // of the four rows on: swizzled_d's exclusive or with the row
    const u32 word = ptx::ld_shared_u32((from ^ swizzle) + i * 512);
    if (ALIGN_D >= 4 || u64(to) % 4 == 0) {
      if (columns >= 2)
        ptx::st_global(reinterpret_cast<u32*>(to), word);
      else if (columns == 1)
        ptx::st_global(to, u16(word));
    } else {
      const u32 next = ptx::ld_shared_u32((from_next ^ swizzle) + i * 512);
      if (columns >= 3)
        ptx::st_global(reinterpret_cast<u32*>(to + 1), word >> 16 | next << 16);
      else if (columns >= 2)
        ptx::st_global(to + 1, u16(word >> 16));
      if (columns >= 1 && lane == 0) ptx::st_global(to, u16(word));
    }
  }
}

/// Copies rows x columns from a full stage to D's (row, column) on, as far as the tile reaches, where TMA has no box
/// for them or does not know where their group ends: 16 bytes a thread at a time. Where TMA stores, each row of D ends
/// at such a boundary.
__device__ __forceinline__ void copy_chunks(const Epilogue& epilogue, u32 stage, u32 thread, int row, int column,
                                            int rows, int columns) {
  constexpr int CHUNK = 16 / int(sizeof(ElementD));  // elements
  const Arguments& args = epilogue.args;
  const WorkTile& tile = epilogue.tile;
  const int across = columns / CHUNK;
  rows = min_of(rows, (SWAP_AB ? tile.column_end : tile.row_end) - row);
  columns = min_of(columns, (SWAP_AB ? tile.row_end : tile.column_end) - column);
  ElementD* const d =
      static_cast<ElementD*>(args.d) + batch_offset(tile.batch, args.stride_d) + row * args.ldd + column;
#pragma unroll 1
  for (int i = int(thread); i < rows * across; i += 128) {
    const int down = i / across, at = i % across * CHUNK;
    if (at >= columns) continue;
    int chunk[4];
    ptx::ld_shared_v4(stage + swizzled_d(u32(down), u32(at) * sizeof(ElementD)), chunk);
    ptx::st_global_cg(reinterpret_cast<int*>(d + down * args.ldd + at), chunk);
  }
}

/// Sends a full stage of STORE_ROWS x `columns` to D by TMA. One thread.
template <typename ItsEpilogue>
__device__ __forceinline__ void send(const ItsEpilogue& epilogue, u32 stage, int row, int column, int columns) {
  constexpr int WIDTH = D_BOX_WIDTH / int(sizeof(ElementD)),
                BOX_BYTES_OF_D = D_BOX_WIDTH * (SWAP_AB ? SUBTILE_COLUMNS : 64);
  const TensorMap* map = epilogue.map_of_d();
  if constexpr (SWAP_AB) {
#pragma unroll
    for (int across = 0; across < STORE_ROWS / WIDTH; ++across)
#pragma unroll
      for (int down = 0; down < columns; down += D_BOX_ROWS)
        ptx::tma_store_3d(map, stage + across * BOX_BYTES_OF_D + down * D_BOX_WIDTH, row + across * WIDTH,
                          column + down, matrix_of_d(epilogue.tile));
  } else {
#pragma unroll
    for (int across = 0; across < columns / WIDTH; ++across)
      ptx::tma_store_3d(map, stage + across * BOX_BYTES_OF_D, column + across * WIDTH, row, matrix_of_d(epilogue.tile));
  }
}

/// Stores a consumer's rows of the block's columns from (row, column) on, whose first operands have been asked
/// for. `subtiles` counts those that its stages have seen.
template <bool INTERIOR, typename ItsEpilogue>
__device__ __forceinline__ void store(const ItsEpilogue& epilogue, const SharedMemory& smem, u32 consumer, u32 thread,
                                      int row, int column, const Accumulator (&accumulators)[STORE_COUNT],
                                      OperandsAhead& operands_ahead, u32& subtiles) {
  const u32 warp = thread / 32, lane = thread % 32;
#pragma unroll
  for (int mma = 0; mma < MMAS_M; ++mma) {
    const int its_row = row + mma * STORE_ROWS;
#pragma unroll
    for (int subtile = 0; subtile < SUBTILES; ++subtile) {
      const int its_column = column + subtile * SUBTILE_COLUMNS;
      const int columns = min_of(SUBTILE_COLUMNS, STORE_COLUMNS - subtile * SUBTILE_COLUMNS);
      const int first = StoreFragment::block(mma, subtile * SUBTILE_COLUMNS * COLUMN_FOLD / 8);
      // Of a group's rows, those that the subtile has; more than it can have: all of them.
      [[maybe_unused]] const int of_group =
          SWAP_AB ? epilogue.tile.column_end - its_column : epilogue.tile.row_end - its_row;
      SubtileOperands operands;
      if constexpr (SUBTILES_AHEAD > 0 && ItsEpilogue::FINISHES)
        operands = operands_ahead.take(mma * SUBTILES + subtile);
      if constexpr (GROUPS_OF_ROWS)
        if (of_group <= 0) continue;
      if constexpr (THROUGH_SHARED) {
        const u32 to = smem.d(consumer, subtiles % D_STAGES);
        if (TMA_STORE && (mma * SUBTILES + subtile >= D_STAGES || subtiles >= D_STAGES)) {
          if (thread == 0) ptx::tma_store_wait_group_read<D_STAGES - 1>();
          ptx::bar_sync(1 + consumer, 128);  // the stage is free
        }
        ++subtiles;
        if constexpr (HAS_OPERANDS && SUBTILES_AHEAD == 0 && ItsEpilogue::FINISHES)
          operands.vectors.load(epilogue.args, epilogue.tile, its_row, its_column, warp, lane);
        fill_stage<INTERIOR>(epilogue, to, consumer, thread, its_row, its_column, first, columns / 8, operands,
                             accumulators);
        if constexpr (TMA_STORE) ptx::fence_proxy_async();  // TMA reads what ordinary stores wrote
        ptx::bar_sync(1 + consumer, 128);  // the stage is full; without TMA, the other one has been read, too
        if constexpr (TMA_STORE) {
          const int of_subtile = SWAP_AB ? columns : STORE_ROWS;
          const bool has_boxes = SWAP_AB || columns * int(sizeof(ElementD)) % D_BOX_WIDTH == 0;
          const bool is_sent = has_boxes && !(GROUPS_OF_ROWS && of_group < of_subtile);
          if (thread == 0) {
            if (is_sent) send(epilogue, to, its_row, its_column, columns);
            ptx::tma_store_commit_group();  // an empty one too: the waits count groups
          }
          if (!is_sent) {
            if constexpr (SWAP_AB)
              copy_chunks(epilogue, to, thread, its_column, its_row, columns, STORE_ROWS);
            else
              copy_chunks(epilogue, to, thread, its_row, its_column, STORE_ROWS, columns);
          }
        } else if constexpr (SWAP_AB) {
          copy_rows(epilogue, to, warp, lane, its_column, its_row, columns, 64);
        } else {
          copy_rows(epilogue, to, warp, lane, its_row, its_column, 64, columns);
        }
      } else {
        const SubtileFragment fragment(warp, lane);
        const FragmentScales<SubtileFragment, 1, INTERIOR> scales(epilogue.args, epilogue.scales, epilogue.tile,
                                                                  fragment, its_row, its_column, columns / 8);
#pragma unroll
        for (int j = 0; j < SubtileFragment::PAIRS; ++j)
#pragma unroll
          for (int half = 0; half < SubtileFragment::HALVES; ++half)
            if (j < columns / 8) {
              const Accumulator* x = accumulators + first + SubtileFragment::sum(0, half, j);
              NeighbourFactors factors;
              scales.get(0, half, j, factors);
              epilogue.template store_pair<INTERIOR>(its_row + fragment.row_of(0, half),
                                                     its_column + fragment.column_of(j), factors, ElementCompute(x[0]),
                                                     ElementCompute(x[1]), ElementCompute(x[SubtileFragment::UP]),
                                                     ElementCompute(x[SubtileFragment::UP + 1]));
            }
      }
    }
  }
}

}  // namespace jitgemm::device
