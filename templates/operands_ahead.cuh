// What the next subtiles of a tile are finished with, on its way from memory: chunks of matrices, and vectors. Asked
// for behind a tile's last products they show, 300 clocks from the L2 and 800 from memory; before its first ones they
// need registers through all of them.
#pragma once
#include "arguments.cuh"
#include "fixup.cuh"
#include "ide.cuh"
#include "layout_sm90.cuh"
#include "staged_matrices.cuh"
#include "subtile_vectors.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

constexpr int TILE_SUBTILES = MMAS_M * SUBTILES;  // of a consumer, numbered through all its rows
constexpr int CHUNK_REGISTERS = STAGES_INPUTS * (STAGES_C ? 1 : OPERAND_COUNTS.staged_inputs) * LANE_CHUNKS * 4;
constexpr int OPERAND_REGISTERS = THROUGH_SHARED ? CHUNK_REGISTERS + SubtileVectors::registers() : 0;  // of a subtile
constexpr bool HAS_OPERANDS = OPERAND_REGISTERS > 0;
// A split tile's are for whoever is last: it asks once it has all sums.
constexpr bool KNOWS_WHO_FINISHES = !splits_tiles(PARTITION);
// Beside its sums, and the products that are added to them, a thread has so many through a tile's main loop.
constexpr int FREE_REGISTERS = (CONSUMERS == 2 ? 112 : 80) - COUNT * (PROMOTED ? 1 + K_BLOCKS_AT_ONCE : 1);
/// Whether a tile's first are asked for before its first product,
constexpr bool ASKS_AT_START = HAS_OPERANDS && KNOWS_WHO_FINISHES && FREE_REGISTERS >= OPERAND_REGISTERS;
// Whether it has registers for one subtile's while it finishes the one before.
constexpr bool HAS_ROOM_BESIDE =
    COUNT < 160 && COUNT + OPERAND_REGISTERS <= (CONSUMERS == 3 || BLOCKS_PER_SM == 2 ? 96 : 168);
/// or else behind its last, where that makes no kernel spill.
constexpr bool ASKS_BEHIND_LAST = HAS_OPERANDS && KNOWS_WHO_FINISHES && !ASKS_AT_START && HAS_ROOM_BESIDE;
/// Subtiles whose operands are on their way at a time. With 0 no matrices have chunks, and each subtile's vectors are
/// loaded where it is finished.
constexpr int SUBTILES_AHEAD = ASKS_AT_START ? min_of(TILE_SUBTILES, FREE_REGISTERS / OPERAND_REGISTERS)
                               : HAS_OPERANDS && (STAGES_INPUTS || HAS_ROOM_BESIDE) ? 1
                                                                                    : 0;
/// Whether these are all that a tile has, at its start.
constexpr bool ASKS_FOR_ALL = ASKS_AT_START && SUBTILES_AHEAD == TILE_SUBTILES;

struct SubtileOperands {
  StagedChunks chunks;
  SubtileVectors vectors;
};

/// A tile's to one warp, of the subtiles that come next.
struct OperandsAhead {
  const Arguments& args;
  const WorkTile& tile;
  u32 warp, lane;
  int row, column;  // the first of the consumer's
  SubtileOperands ahead[max_of(1, SUBTILES_AHEAD)];

  __device__ __forceinline__ OperandsAhead(const Arguments& args, const WorkTile& tile, u32 warp, u32 lane, int row,
                                           int column)
      : args(args), tile(tile), warp(warp), lane(lane), row(row), column(column) {}

  /// For those of the first subtiles.
  __device__ __forceinline__ void ask() {
#pragma unroll
    for (int number = 0; number < SUBTILES_AHEAD; ++number) load(number, ahead[number]);
  }
  /// Those of a subtile, asking for others in their place.
  __device__ __forceinline__ SubtileOperands take(int number) {
    SubtileOperands& place = ahead[number % SUBTILES_AHEAD];
    const SubtileOperands operands = place;
    if (number + SUBTILES_AHEAD < TILE_SUBTILES) load(number + SUBTILES_AHEAD, place);
    return operands;
  }

 private:
  __device__ __forceinline__ void load(int number, SubtileOperands& operands) const {
    const int across = number % SUBTILES * SUBTILE_COLUMNS;
    const int its_row = row + number / SUBTILES * STORE_ROWS, its_column = column + across;
    if constexpr (STAGES_INPUTS)
      StagedSubtile{args, tile, warp, lane, its_row, its_column, min_of(SUBTILE_COLUMNS, STORE_COLUMNS - across) / 8}
          .load(operands.chunks);
    operands.vectors.load(args, tile, its_row, its_column, warp, lane);
  }
};

/// What the epilogue is given of a subtile's, for one pair of sums.
struct StagedPair {
  static constexpr bool HAS_MATRICES = STAGES_MATRICES, HAS_VECTORS = true;
  StagedPairs& pairs;
  int number;
  const NeighbourVectors& vectors;

  /// A matrix's two elements.
  __device__ __forceinline__ u32& operator()(int matrix) const { return pairs.of[matrix][number]; }
  /// A vector's.
  __device__ __forceinline__ void operator()(int vector, ElementCompute (&x)[2]) const {
    x[0] = vectors.of[vector][0];
    x[1] = vectors.of[vector][1];
  }
};

}  // namespace jitgemm::device
