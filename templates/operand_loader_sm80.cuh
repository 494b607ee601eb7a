// How the portable main loop's threads copy an operand's k-blocks into the ring: by cp.async, or, where that cannot
// address it (aligned to less than 4 bytes), through registers.
#pragma once
#include "ide_sm80.cuh"
#include "operand_tile.cuh"
#include "paired_source.cuh"
#include "pairs.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/global.cuh"
#include "ptx/shared.cuh"
#include "ptx/special_registers.cuh"

namespace jitgemm::device {

/// Copies one operand's part of successive k-blocks into shared memory, zeros beyond the matrix. GATED: its columns are
/// pairs.
template <typename Element, int BLOCK, bool K_MAJOR, int ALIGN, bool GATED = false>
struct OperandLoader {
  using Tile = OperandTile<Element, BLOCK, K_MAJOR>;
  static constexpr int SIZE = sizeof(Element), CHUNK = 16 / SIZE;  // elements
  static constexpr bool HOLDS = ALIGN < 4;
  static constexpr int COUNT = Tile::BYTES / 16 / GEOMETRY.threads;  // chunks a thread
  static constexpr int ROW_STEP = GEOMETRY.threads / Tile::CHUNKS;   // rows between a thread's chunks

  const long long& ld;           // elements
  const char* source = nullptr;  // this thread's first chunk of the next k-block; advanced without work, too
  int mn_left;                   // M (N) from this thread's first chunk on, elements
  PairedSource<K_MAJOR, SIZE, ROW_STEP> pairs;
  U32x4 held[HOLDS ? COUNT : 1];

  __device__ __forceinline__ OperandLoader(const long long& leading_dimension, const int& extent)
      : ld(leading_dimension), pairs{extent} {}

  static __device__ __forceinline__ u32 row() { return ptx::thread_index() / Tile::CHUNKS; }
  static __device__ __forceinline__ u32 chunk() { return ptx::thread_index() % Tile::CHUNKS; }

  /// To element (mn, k) of an operand with `mn_extent` rows (columns), which begins `offset` elements into its memory.
  __device__ __forceinline__ void seek(const void* matrix, i64 offset, int mn, int mn_extent, int k) {
    if constexpr (GATED) return seek_pairs(matrix, offset, mn, k);
    const int first_row = (K_MAJOR ? mn : k) + row(), first_column = (K_MAJOR ? k : mn) + chunk() * CHUNK;
    mn_left = mn_extent - (K_MAJOR ? first_row : first_column);
    source = static_cast<const char*>(matrix) + (offset + first_row * ld + first_column) * SIZE;
  }

  /// The same where the kernel's columns are not those of memory; mn_left counts D's.
  __device__ __forceinline__ void seek_pairs(const void* matrix, i64 offset, int mn, int k) {
    const int p = mn + (K_MAJOR ? int(row()) : int(chunk()) * CHUNK);
    const int column = pairs.column(p), place = pairs.place(column, pairs.kind(p));
    mn_left = (pairs.width() - column) * (pairs.IN_TURN ? 2 : 1);
    source = static_cast<const char*>(matrix) +
             (offset + (K_MAJOR ? place * ld + k + int(chunk()) * CHUNK : (k + int(row())) * ld + place)) * SIZE;
  }

  __device__ __forceinline__ void advance() { source += BLOCK_K * (K_MAJOR ? 1 : ld) * SIZE; }

  /// Elements of this thread's ith chunk that are in the matrix, when K ends `k_left` elements on; none if negative.
  __device__ __forceinline__ int valid_elements(int i, int k_left) const {
    const int rows = K_MAJOR ? mn_left : k_left - int(row()),
              columns = K_MAJOR ? k_left - int(chunk() * CHUNK) : mn_left;
    const int row = GATED && K_MAJOR ? pairs.columns_to(i) : i * ROW_STEP;
    return row >= rows ? 0 : columns < CHUNK ? columns : CHUNK;
  }

  /// Where this thread's ith chunk goes in a tile.
  static __device__ __forceinline__ u32 offset(int i) {
    if constexpr (ROW_STEP % Tile::PERIOD == 0)
      return Tile::offset(row(), chunk()) + i * ROW_STEP * Tile::ROW_BYTES;
    else
      return Tile::offset(row() + i * ROW_STEP, chunk());
  }

  /// The chunk behind the ith, which is at `from`.
  __device__ __forceinline__ const char* chunk_after(int i, const char* from) const {
    return GATED && K_MAJOR ? source + pairs.rows_to(i + 1) * ld * SIZE : from + ROW_STEP * ld * SIZE;
  }

  /// Where memory has the elements of a chunk.
  __device__ __forceinline__ auto source_elements() const {
    if constexpr (GATED)
      return pairs;
    else
      return AdjacentElements{};
  }

  /// `valid` elements at `from`, and zeros for the rest of the chunk.
  template <typename InMemory>
  static __device__ __forceinline__ U32x4 load_elements(const InMemory& elements, const char* from, int valid) {
    u32 words[4];
    if constexpr (SIZE >= 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = i / (SIZE / 4) < valid ? ptx::ld_global<u32>(elements.at(from, 4 * i)) : 0;
    } else {
      constexpr int IN_WORD = 4 / SIZE;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i] = 0;
#pragma unroll
        for (int j = 0; j < IN_WORD; ++j) {
          const int e = i * IN_WORD + j;
          if constexpr (SIZE == 2)
            words[i] |= (e < valid ? u32(ptx::ld_global<u16>(elements.at(from, 2 * e))) : 0) << 16 * j;
          else
            words[i] |= (e < valid ? u32(ptx::ld_global<u8>(elements.at(from, e))) : 0) << 8 * j;
        }
      }
    }
    return {words[0], words[1], words[2], words[3]};
  }

  /// A row may end within what one cp.async reads, and at the end of the memory.
  template <typename InMemory>
  static __device__ __forceinline__ void copy(const InMemory& elements, u32 to, const char* from, int valid) {
    if (SIZE * valid % ALIGN == 0) {
#pragma unroll
      for (int e = 0; e < 16; e += ALIGN) ptx::cp_async<ALIGN>(to + e, elements.at(from, e), e < SIZE * valid);
    } else {
      ptx::st_shared_v4(to, load_elements(elements, from, valid));
    }
  }

  /// Starts the copy. INTERIOR promises that the whole tile is inside the matrix, which saves ten instructions a chunk.
  template <bool INTERIOR>
  __device__ __forceinline__ void begin(u32 smem, int k_left) {
    const char* from = source;
    if constexpr (HOLDS) {
#pragma unroll
      for (int i = 0; i < COUNT; from = chunk_after(i, from), ++i) {
        held[i] = load_elements(source_elements(), from, INTERIOR ? CHUNK : valid_elements(i, k_left));
      }
    } else if constexpr (INTERIOR) {
#pragma unroll
      for (int i = 0; i < COUNT; from = chunk_after(i, from), ++i)
        copy(source_elements(), smem + offset(i), from, CHUNK);
    } else {
#pragma unroll 1  // a loop is not turned into predicated instructions that the interior would issue, too
      for (int i = 0; i < COUNT; from = chunk_after(i, from), ++i)
        copy(source_elements(), smem + offset(i), from, valid_elements(i, k_left));
    }
  }

  /// The part of the copy that waits for begin()'s loads.
  __device__ __forceinline__ void finish(u32 smem) {
    if constexpr (HOLDS) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) ptx::st_shared_v4(smem + offset(i), held[i]);
    }
  }
};

}  // namespace jitgemm::device
