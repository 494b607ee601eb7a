#pragma once

#include <cstdint>
#include <string>

#include "backend/backend.hpp"
#include "jitgemm/jitgemm.hpp"

namespace jitgemm::cli {

/// How far D is from a float64 computation with the same inputs.
struct Check {
  std::int64_t elements = 0;  ///< compared
  bool whole = false;         ///< all of D was
  double worst_error = 0;     ///< |d - reference|
  double worst_ratio = 0;     ///< of the error to what the contract allows, of the element where that is largest
  std::int64_t row = 0, column = 0;
  double got = 0, expected = 0;  ///< there

  bool passed() const { return worst_ratio <= 1; }
};

/// Overwrites D with NaN, so that an element that nothing writes is found.
void poison(Backend& backend, const Problem& normalised, const Operands& operands);

/// Compares D with the reference: all of it when small, else a sample of rows and columns with the corners among them.
Check check_against_reference(Backend& backend, const Problem& normalised, const Operands& operands,
                              std::int64_t most_elements = 1 << 16);

/// Whether D's that two programs computed of the same inputs, about N(0,1), agree on some rows within the rounding of
/// either, also of one that rounds the parts of a split sum to D's type. Empty if they do, else where they do not.
std::string compare_rows(Backend& backend, const Problem& normalised, const void* d, const void* other);

}  // namespace jitgemm::cli
