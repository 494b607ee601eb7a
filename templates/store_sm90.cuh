// How a consumer warpgroup's rows of D leave its registers: through shared memory, 128 bytes a row at a time, by TMA,
// or where TMA cannot address D by whole rows of a warp.
#pragma once
#include "arguments.cuh"
#include "epilogue.cuh"
#include "ide.cuh"
#include "layout_sm90.cuh"
#include "ptx/barrier.cuh"
#include "ptx/convert.cuh"
#include "ptx/global.cuh"
#include "ptx/shared.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/tma.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

__device__ __forceinline__ u32 bits(float x) { return __builtin_bit_cast(u32, x); }
__device__ __forceinline__ u32 bits(int x) { return u32(x); }

constexpr int PASSES = ceil_div(STORE_COLUMNS, PASS_COLUMNS);
constexpr int STORE_COUNT = MMAS_M * STORE_COLUMNS / 2;  // accumulators a thread
constexpr bool THROUGH_SHARED = TMA_STORE || sizeof(ElementD) == 2;
// Else D's edges are seen to on the way out of shared memory, and one store does for all tiles: a quarter of the
// compile time.
constexpr bool EDGES_DIFFER = READS_C || BIAS != Bias::none || !THROUGH_SHARED;

/// Where byte `at` of D's row lies in a buffer: boxes of D_BOX_WIDTH bytes, each with TMA's swizzle of that width, side
/// by side.
__device__ __forceinline__ u32 swizzled_d(u32 row, u32 at) {
  constexpr u32 ROWS = SWAP_AB ? PASS_COLUMNS : 64, ROWS_A_SWIZZLE_STEP = 128 / D_BOX_WIDTH, CHUNKS = D_BOX_WIDTH / 16;
  const u32 inner = at % D_BOX_WIDTH;
  return at / D_BOX_WIDTH * (ROWS * D_BOX_WIDTH) + row * D_BOX_WIDTH +
         (inner / 16 ^ row / ROWS_A_SWIZZLE_STEP % CHUNKS) * 16 + inner % 16;
}

/// Finishes 64 rows x PASS_COLUMNS from (row, column) on, as far as they are the block's, and leaves them in the
/// buffer. `first` is the index of the thread's first accumulator; `groups` are of 8 columns.
template <bool INTERIOR, typename T = ElementD>
__device__ __forceinline__ void fill_buffer(const Epilogue& epilogue, u32 buffer, u32 thread, int row, int column,
                                            int first, int groups, const Accumulator (&accumulators)[STORE_COUNT]) {
  constexpr int GROUPS = PASS_COLUMNS / 8;
  const u32 warp = thread / 32, lane = thread % 32;
  const u32 own_row = warp * 16 + lane / 4, own_column = lane % 4 * 2;
  Accumulator x[GROUPS][4];
#pragma unroll
  for (int j = 0; j < GROUPS; ++j)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      if (j >= groups) continue;
      x[j][e] = accumulators[first + j * 4 + e];
      x[j][e + 1] = accumulators[first + j * 4 + e + 1];
      epilogue.finish<INTERIOR>(row + own_row + e * 4, column + j * 8 + own_column, x[j][e], x[j][e + 1]);
    }

  if constexpr (sizeof(T) == 2) {
    const auto pair = [&](int group, int e) { return ptx::pack(T{}, x[group][e], x[group][e + 1]); };
    // 8 x 8 matrices, two down and two across; lanes 8i.. give the rows of the ith. Eight rows on, the swizzle is the
    // same again; two groups of columns on, it is the exclusive or, since lane / 16 is the lowest bit of a group.
    const u32 own = buffer + (SWAP_AB ? swizzled_d(lane / 16 * 8 + lane % 8, warp * 32 + lane / 8 % 2 * 16)
                                      : swizzled_d(warp * 16 + lane % 16, lane / 16 * 16));
    const auto address = [&](int group) {
      return SWAP_AB ? own + group * (8 * D_BOX_WIDTH)
                     : (own ^ group * 16 % D_BOX_WIDTH) + group * 16 / D_BOX_WIDTH * (64 * D_BOX_WIDTH);
    };
#pragma unroll
    for (int j = 0; j < GROUPS; j += 2) {
      if (j + 1 < groups)
        ptx::stmatrix_x4<SWAP_AB>(address(j), pair(j, 0), pair(j, 2), pair(j + 1, 0), pair(j + 1, 2));
      else if (j < groups)
        ptx::stmatrix_x2<SWAP_AB>(address(j), pair(j, 0), pair(j, 2));
    }
  } else {
#pragma unroll
    for (int j = 0; j < GROUPS; ++j)
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        if (j >= groups) continue;
        const u32 at_row = own_row + e * 4, at_column = j * 8 + own_column;
        if constexpr (SWAP_AB) {
          const auto to = [&](u32 i) { return buffer + swizzled_d(at_column + i, at_row * sizeof(T)); };
          if constexpr (sizeof(T) == 1) {
            const u16 two = ptx::pack(T{}, x[j][e], x[j][e + 1]);
            ptx::st_shared_u8(to(0), u8(two));
            ptx::st_shared_u8(to(1), u8(two >> 8));
          } else {
            ptx::st_shared_u32(to(0), bits(x[j][e]));
            ptx::st_shared_u32(to(1), bits(x[j][e + 1]));
          }
        } else {
          const u32 to = buffer + swizzled_d(at_row, at_column * sizeof(T));
          if constexpr (sizeof(T) == 1)
            ptx::st_shared_u16(to, ptx::pack(T{}, x[j][e], x[j][e + 1]));
          else
            ptx::st_shared_v2(to, bits(x[j][e]), bits(x[j][e + 1]));
        }
      }
  }
}

/// Copies rows x columns of 16-bit elements from a buffer to D's (row, column) on, as far as D reaches: a row a warp at
/// a time, as words of two elements from the row's first 4-byte boundary on.
__device__ __forceinline__ void copy_rows(const Epilogue& epilogue, u32 buffer, u32 warp, u32 lane, int row, int column,
                                          int rows, int columns) {
  const Arguments& args = epilogue.args;
  const WorkTile& tile = epilogue.tile;
  rows = min_of(rows, (SWAP_AB ? tile.column_end : tile.row_end) - row);
  columns =
      min_of(columns, (SWAP_AB ? tile.row_end : tile.column_end) - column) - int(lane) * 2;  // from the lane's word on
  const u32 from = buffer + swizzled_d(warp, lane * 4), from_next = buffer + swizzled_d(warp, (lane + 1) % 32 * 4);
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

/// Sends a full buffer of 64 rows x `columns` to D by TMA. One thread.
__device__ __forceinline__ void send(const Epilogue& epilogue, u32 buffer, int row, int column, int columns) {
  constexpr int WIDTH = D_BOX_WIDTH / int(sizeof(ElementD)),
                BOX_BYTES_OF_D = D_BOX_WIDTH * (SWAP_AB ? PASS_COLUMNS : 64);
  const TensorMap* map = &epilogue.args.map_d;
  if constexpr (SWAP_AB) {
#pragma unroll
    for (int across = 0; across < 64 / WIDTH; ++across)
#pragma unroll
      for (int down = 0; down < columns; down += D_BOX_ROWS)
        ptx::tma_store_3d(map, buffer + across * BOX_BYTES_OF_D + down * D_BOX_WIDTH, row + across * WIDTH,
                          column + down, epilogue.tile.batch);
  } else {
#pragma unroll
    for (int across = 0; across < columns / WIDTH; ++across)
      ptx::tma_store_3d(map, buffer + across * BOX_BYTES_OF_D, column + across * WIDTH, row, epilogue.tile.batch);
  }
}

/// Stores a consumer's rows of the block's columns from (row, column) on. `passes` counts those that its buffers have
/// seen.
template <bool INTERIOR>
__device__ __forceinline__ void store(const Epilogue& epilogue, const SharedMemory& smem, u32 consumer, u32 thread,
                                      int row, int column, const Accumulator (&accumulators)[STORE_COUNT],
                                      u32& passes) {
  const u32 warp = thread / 32, lane = thread % 32;
#pragma unroll
  for (int mma = 0; mma < MMAS_M; ++mma) {
    const int mma_row = row + mma * 64;
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
      const int pass_column = column + pass * PASS_COLUMNS;
      const int columns = min_of(PASS_COLUMNS, STORE_COLUMNS - pass * PASS_COLUMNS);
      const int first = (mma * STORE_COLUMNS + pass * PASS_COLUMNS) / 2;
      if constexpr (THROUGH_SHARED) {
        const u32 to = smem.d(consumer, passes % D_BUFFERS);
        if (TMA_STORE && (mma * PASSES + pass >= D_BUFFERS || passes >= D_BUFFERS)) {
          if (thread == 0) ptx::tma_store_wait_group_read<D_BUFFERS - 1>();
          ptx::bar_sync(1 + consumer, 128);  // the buffer is free
        }
        ++passes;
        fill_buffer<INTERIOR>(epilogue, to, thread, mma_row, pass_column, first, columns / 8, accumulators);
        if constexpr (TMA_STORE) ptx::fence_proxy_async();  // TMA reads what ordinary stores wrote
        ptx::bar_sync(1 + consumer, 128);  // the buffer is full; without TMA, the other one has been read, too
        if constexpr (TMA_STORE) {
          if (thread == 0) {
            send(epilogue, to, mma_row, pass_column, columns);
            ptx::tma_store_commit_group();
          }
        } else if constexpr (SWAP_AB) {
          copy_rows(epilogue, to, warp, lane, pass_column, mma_row, columns, 64);
        } else {
          copy_rows(epilogue, to, warp, lane, mma_row, pass_column, 64, columns);
        }
      } else {
#pragma unroll
        for (int j = 0; j < PASS_COLUMNS / 8; ++j)
#pragma unroll
          for (int e = 0; e < 4; e += 2)
            if (j < columns / 8)
              epilogue.store_pair<INTERIOR>(mma_row + warp * 16 + lane / 4 + e * 4, pass_column + j * 8 + lane % 4 * 2,
                                            accumulators[first + j * 4 + e], accumulators[first + j * 4 + e + 1]);
      }
    }
  }
}

}  // namespace jitgemm::device
