#pragma once

#include "jitgemm/epilogue.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

// Of an epilogue of the caller's own that takes pairs of columns of the product, all that the size of D depends on. A
// digest has it in its lowest bits, so that it is known of problems whose function this process has not defined, as
// databases have them, too.

inline constexpr std::uint64_t pairing_bits = 3;

inline Pairing pairing_of(const Problem& problem) { return Pairing(problem.epilogue.function & pairing_bits); }
inline bool has_pairs(const Problem& problem) { return pairing_of(problem) != Pairing::none; }

/// From one column of a pair to the other, in a B of all of the problem's columns.
inline std::int64_t pair_distance(const Problem& problem) {
  return pairing_of(problem) == Pairing::halves ? problem.n / 2 : 1;
}

/// Of a product's `n` columns, which is even where they are paired.
inline std::int64_t columns_of_d(const Problem& problem) { return has_pairs(problem) ? problem.n / 2 : problem.n; }

/// Where in D a column of the product ends up that is a pair's first.
inline std::int64_t column_of_d(const Problem& problem, std::int64_t column) {
  return has_pairs(problem) ? column / 2 : column;
}

/// Kernels have the columns of a pair in turn, `pair_columns` of the first kind and as many of the second
/// (templates/pairs.cuh): of the product, the columns that they see.
inline constexpr std::int64_t pair_columns = 8;
inline std::int64_t interleaved_columns(const Problem& problem) {
  return (columns_of_d(problem) + pair_columns - 1) / pair_columns * (2 * pair_columns);
}

/// Whether TMA copies groups of pairs one at a time: the last is not whole, or each matrix is found by its pointer,
/// which takes the dimensions that a map has for groups.
inline bool has_ragged_pairs(const Problem& problem) {
  return has_pairs(problem) &&
         (columns_of_d(problem) % pair_columns != 0 || problem.b.batch_mode == BatchMode::pointers);
}

}  // namespace jitgemm
