// Where the portable main loop finds an operand's columns (rows of memory, K-major) that are pairs: the kernel's are 8
// of each kind in turn (pairs.cuh), memory has them as PAIRING says.
#pragma once
#include "ide_sm80.cuh"
#include "pairs.cuh"

namespace jitgemm::device {

/// A chunk whose elements are neighbours in memory, too.
struct AdjacentElements {
  /// Where memory has the byte of the chunk at `from`.
  static __device__ __forceinline__ const char* at(const char* from, int byte) { return from + byte; }
};

/// Of elements of SIZE bytes; K-major, a thread copies chunks ROW_STEP rows apart.
///
/// N-major 8-bit elements are permuted where they are multiplied, halves of 16 interleaved (multiply_mma.cuh): they
/// come one of each kind in turn instead, and leave it 8 and 8.
template <bool K_MAJOR, int SIZE, int ROW_STEP>
struct PairedSource {
  static constexpr bool HALVES = PAIRING == Pairing::halves, IN_TURN = !K_MAJOR && SIZE == 1;
  static_assert(!K_MAJOR || ROW_STEP % 16 == 0 || 8 % ROW_STEP == 0, "a step goes to the same column of other groups");

  const int& n;  // of the product, columns

  __device__ __forceinline__ int width() const { return n / 2; }

  /// The column of D, and which of its two in the product, that the kernel's column p is.
  static __device__ __forceinline__ int column(int p) { return IN_TURN ? p / 2 : p / 16 * 8 + p % 8; }
  static __device__ __forceinline__ int kind(int p) { return IN_TURN ? p % 2 : p / 8 % 2; }

  /// Where memory has it.
  __device__ __forceinline__ int place(int its_column, int its_kind) const {
    return place_of_pair(its_column, its_kind, width());
  }

  /// From a thread's first chunk to its ith, K-major: columns of D, and rows of memory.
  static __device__ __forceinline__ int columns_to(int i) {
    return ROW_STEP % 16 == 0 ? i * (ROW_STEP / 2) : i * ROW_STEP / 16 * 8 + i * ROW_STEP % 8;
  }
  __device__ __forceinline__ int rows_to(int i) const {
    const int kinds = ROW_STEP % 16 == 0 ? 0 : i * ROW_STEP / 8 % 2;
    return HALVES ? kinds * width() + columns_to(i) : 2 * columns_to(i) + kinds;
  }

  /// From a chunk's first element to the eth, elements of memory.
  __device__ __forceinline__ i64 elements_to(int e) const {
    if constexpr (K_MAJOR || (IN_TURN ? !HALVES : HALVES))
      return e;
    else
      return IN_TURN ? e / 2 + i64(e % 2 * width()) : 2 * e;
  }

  /// As AdjacentElements.
  __device__ __forceinline__ const char* at(const char* from, int byte) const {
    return from + elements_to(byte / SIZE) * SIZE + byte % SIZE;
  }
};

}  // namespace jitgemm::device
