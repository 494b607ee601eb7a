// Matrices of 16-bit elements that the epilogue reads, or writes beside D, where D leaves through shared memory: 16
// bytes a thread between memory and D's stage, and by ldmatrix and stmatrix between the stage and where the
// accumulators are. Each warp moves what it needs itself, in the part of the stage that it fills with D afterwards.
#pragma once
#include "arguments.cuh"
#include "custom_epilogue.cuh"
#include "ide.cuh"
#include "layout_sm90.cuh"
#include "memory.cuh"
#include "pairs.cuh"
#include "ptx/barrier.cuh"
#include "ptx/convert.cuh"
#include "ptx/global.cuh"
#include "ptx/shared.cuh"
#include "ptx/stmatrix.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

constexpr bool STAGES_MATRICES = THROUGH_SHARED && sizeof(ElementD) == 2 && !PAIRS;
constexpr bool STAGES_C = STAGES_MATRICES && READS_C && sizeof(ElementC) == 2;

/// What a function's matrices are to a kernel: some come by the stage, others element by element.
struct OperandCounts {
  int staged_inputs = 0, staged_outputs = 0, by_element = 0;
};
template <bool EXISTS, typename Function>
constexpr OperandCounts count_operands() {
  OperandCounts counts;
  if constexpr (EXISTS) {
    const auto count = [&](auto operand, int& staged) {
      if constexpr (decltype(operand)::template is_staged<STAGES_MATRICES>())
        ++staged;
      else if constexpr (decltype(operand)::IS_MATRIX)
        ++counts.by_element;
    };
    Function::for_each_input([&](auto operand, auto) { count(operand, counts.staged_inputs); });
    Function::for_each_output([&](auto operand, auto) { count(operand, counts.staged_outputs); });
  }
  return counts;
}
constexpr OperandCounts OPERAND_COUNTS = count_operands<HAS_CUSTOM_EPILOGUE, CustomEpilogue>();
constexpr bool STAGES_INPUTS = STAGES_C || OPERAND_COUNTS.staged_inputs > 0;
constexpr bool STAGES_OUTPUTS = OPERAND_COUNTS.staged_outputs > 0;
/// Whether the epilogue loads or stores elements of matrices that no chunk has.
constexpr bool LOADS_BY_ELEMENT = (READS_C && !STAGES_C) || OPERAND_COUNTS.by_element > 0;

/// 8 x 8 matrices of a stage, two down and two across from a group of 8 columns on, as one ldmatrix or stmatrix has
/// them: lanes 8i.. give the rows of the ith.
struct SubtileMatrices {
  u32 own;

  __device__ __forceinline__ SubtileMatrices(u32 stage, u32 warp, u32 lane)
      : own(stage + (SWAP_AB ? swizzled_d(lane / 16 * 8 + lane % 8, warp * 32 + lane / 8 % 2 * 16)
                             : swizzled_d(warp * 16 + lane % 16, lane / 16 * 16))) {}
  /// Eight rows on, the swizzle is the same again; two groups of columns on, it is the exclusive or, since lane / 16 is
  /// the lowest bit of a group.
  __device__ __forceinline__ u32 at(int group) const {
    return SWAP_AB ? own + group * (8 * D_BOX_WIDTH)
                   : (own ^ group * 16 % D_BOX_WIDTH) + group * 16 / D_BOX_WIDTH * (64 * D_BOX_WIDTH);
  }
};

// A warp's part of a subtile: 16 rows of the kernel's, which are columns of memory's with SWAP_AB.
[[maybe_unused]] constexpr int CHUNK = 8;                             // elements, 16 bytes
constexpr int LANE_CHUNKS = ceil_div(2 * SUBTILE_COLUMNS, 32);        // of a lane
constexpr int SUBTILE_PAIRS = ceil_div(SUBTILE_COLUMNS, 16) * 2 * 2;  // of a thread
constexpr int MATRICES = HAS_CUSTOM_EPILOGUE ? 8 : 1;                 // by an operand's number; C

/// A thread's chunks of each matrix.
struct StagedChunks {
  U32x4 of[MATRICES][LANE_CHUNKS];
};
/// A thread's pairs of neighbours, in the order of groups of columns, two halves each.
struct StagedPairs {
  u32 of[MATRICES][SUBTILE_PAIRS];
};
/// The first `left` of 8 elements, 0 beyond; of all of them by one access where they are aligned to it.
template <typename T>
__device__ __forceinline__ U32x4 load_staged_chunk(const T* from, int left) {
  if (left >= CHUNK && u64(from) % 16 == 0) return ptx::ld_global<U32x4>(from);
  u32 words[4] = {};
  if (left > 0) {
#pragma unroll 1
    for (int i = CHUNK - 1; i >= 0; --i) {
#pragma unroll
      for (int word = 3; word > 0; --word) words[word] = words[word] << 16 | words[word - 1] >> 16;
      words[0] <<= 16;
      if (i < left) words[0] |= ptx::ld_global<u16>(from + i);
    }
  }
  return {words[0], words[1], words[2], words[3]};
}
template <typename T>
__device__ __forceinline__ void store_staged_chunk(T* to, int left, U32x4 chunk) {
  if (left >= CHUNK && u64(to) % 16 == 0) {
    ptx::st_global(to, chunk);
  } else if (left > 0) {
    u32 words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll 1
    for (int i = 0; i < min_of(left, CHUNK); ++i) {
      ptx::st_global(to + i, u16(words[0]));
#pragma unroll
      for (int word = 0; word < 3; ++word) words[word] = words[word] >> 16 | words[word + 1] << 16;
      words[3] >>= 16;
    }
  }
}

/// The subtile from (row, column) on, `groups` of 8 columns wide, to one warp.
struct StagedSubtile {
  const Arguments& args;
  const WorkTile& tile;
  u32 warp, lane;
  int row, column, groups;

  __device__ __forceinline__ void load(StagedChunks& chunks) const {
    if constexpr (STAGES_C)
      load_matrix(static_cast<const ElementC*>(args.c) + batch_offset(tile.batch, args.stride_c), args.ldc,
                  chunks.of[0]);
    else if constexpr (STAGES_INPUTS)
      for_each_staged_input([&](auto operand) {
        using Operand = decltype(operand);
        load_matrix(Operand::at(args, 0, 0, tile.batch), Operand::of(args).ld, chunks.of[Operand::NUMBER]);
      });
  }
  /// Turns chunks into pairs.
  __device__ __forceinline__ void take(const StagedChunks& chunks, u32 stage, StagedPairs& pairs) const {
    if constexpr (STAGES_C)
      take_matrix(chunks.of[0], stage, pairs.of[0]);
    else if constexpr (STAGES_INPUTS)
      for_each_staged_input([&](auto operand) {
        constexpr int NUMBER = decltype(operand)::NUMBER;
        take_matrix(chunks.of[NUMBER], stage, pairs.of[NUMBER]);
      });
  }
  /// Stores what pairs have of the matrices that are written.
  template <typename Function = CustomEpilogue>
  __device__ __forceinline__ void store(const StagedPairs& pairs, u32 stage) const {
    Function::for_each_output([&](auto operand, auto) {
      using Operand = decltype(operand);
      if constexpr (Operand::template is_staged<STAGES_MATRICES>())
        store_matrix(Operand::at(args, 0, 0, tile.batch), Operand::of(args).ld, stage, pairs.of[Operand::NUMBER]);
    });
  }

 private:
  template <typename Visit, typename Function = CustomEpilogue>
  __device__ __forceinline__ void for_each_staged_input(const Visit& visit) const {
    Function::for_each_input([&](auto operand, auto) {
      if constexpr (decltype(operand)::template is_staged<STAGES_MATRICES>()) visit(operand);
    });
  }

  /// Calls visit(i, where it lies in the stage, m, n, how many elements D has from there on) for each chunk.
  template <typename Visit>
  __device__ __forceinline__ void for_each_chunk(const Visit& visit) const {
#pragma unroll
    for (int i = 0; i < LANE_CHUNKS; ++i) {
      const int chunk = i * 32 + int(lane), across = SWAP_AB ? 2 : groups;
      if ((i + 1) * 32 > groups * 16 && chunk >= groups * 16) continue;
      const int down = chunk / across, first = chunk % across;
      const int m = SWAP_AB ? column + down : row + int(warp) * 16 + down;
      const int n = (SWAP_AB ? row + int(warp) * 16 : column) + first * CHUNK;
      const int left = (SWAP_AB ? tile.row_end : tile.column_end) - n;
      const bool has_row = m < (SWAP_AB ? tile.column_end : tile.row_end);
      visit(i, SWAP_AB ? swizzled_d(down, warp * 32 + first * 16) : swizzled_d(warp * 16 + down, first * 16), m, n,
            has_row ? left : 0);
    }
  }

  template <typename T>
  __device__ __forceinline__ void load_matrix(const T* matrix, i64 ld, U32x4 (&chunks)[LANE_CHUNKS]) const {
    for_each_chunk(
        [&](int i, u32, int m, int n, int left) { chunks[i] = load_staged_chunk(matrix + (m * ld + n), left); });
  }
  __device__ __forceinline__ void take_matrix(const U32x4 (&chunks)[LANE_CHUNKS], u32 stage,
                                              u32 (&pairs)[SUBTILE_PAIRS]) const {
    for_each_chunk([&](int i, u32 at, int, int, int) { ptx::st_shared_v4(stage + at, chunks[i]); });
    ptx::warp_sync();
    const SubtileMatrices matrices(stage, warp, lane);
#pragma unroll
    for (int j = 0; j < SUBTILE_COLUMNS / 8; j += 2) {
      if (j >= groups) continue;
      u32 x[4];
      if constexpr (SWAP_AB)
        ptx::ldmatrix_x4_trans(matrices.at(j), x);
      else
        ptx::ldmatrix_x4(matrices.at(j), x);
#pragma unroll
      for (int i = 0; i < 4; ++i) pairs[j * 2 + i] = x[i];
    }
    ptx::warp_sync();  // another matrix takes the place
  }
  template <typename T>
  __device__ __forceinline__ void store_matrix(T* matrix, i64 ld, u32 stage, const u32 (&pairs)[SUBTILE_PAIRS]) const {
    const SubtileMatrices matrices(stage, warp, lane);
#pragma unroll
    for (int j = 0; j < SUBTILE_COLUMNS / 8; j += 2) {
      if (j + 1 < groups)
        ptx::stmatrix_x4<SWAP_AB>(matrices.at(j), pairs[j * 2], pairs[j * 2 + 1], pairs[j * 2 + 2], pairs[j * 2 + 3]);
      else if (j < groups)
        ptx::stmatrix_x2<SWAP_AB>(matrices.at(j), pairs[j * 2], pairs[j * 2 + 1]);
    }
    ptx::warp_sync();
    for_each_chunk([&](int, u32 at, int m, int n, int left) {
      store_staged_chunk(matrix + (m * ld + n), left, ptx::ld_shared_v4(stage + at));
    });
    ptx::warp_sync();
  }
};

}  // namespace jitgemm::device
