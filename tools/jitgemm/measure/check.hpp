#pragma once

#include <cstdint>
#include <string>

#include "jitgemm/problem.hpp"

namespace jitgemm {
class Backend;
struct ExpectedElement;
}  // namespace jitgemm

namespace jitgemm::cli {

/// An element of D, or of an epilogue's output.
struct CheckedElement {
  std::string what = "D";
  std::int64_t batch = 0, row = 0, column = 0;
};

/// A row of matrix, or of group, `batch`; where groups share D it counts from the first group's on.
struct RowOfD {
  std::int64_t batch, row;
};

/// How far D is from a float64 computation with the same inputs.
struct Check {
  std::int64_t elements = 0;  ///< compared
  std::int64_t nans = 0;      ///< of these, NaN where that is right
  bool whole = false;         ///< all of D was
  CheckedElement worst;       ///< by error over what is allowed there
  double got = 0, expected = 0;
  double error = 0, allowed = 0;  ///< |got - expected|, and what rounding may make of it
  double ratio = -1;              ///< above 1: wrong; below 0: nothing was compared

  bool passed() const { return ratio <= 1; }
  void compare(const CheckedElement& element, double got, const ExpectedElement& expected);
};

/// "D(1, 2)", of a batch "D[7](1, 2)".
std::string element_name(const Problem& problem, const CheckedElement& element);

/// Overwrites D, and what an epilogue of one's own writes besides, with NaN, so that an element that nothing writes is
/// found.
void poison(Backend& backend, const Problem& normalised, const Operands& operands);

/// Compares D with the reference: all of it when small, else a sample of rows and columns with the corners among them.
Check check_against_reference(Backend& backend, const Problem& normalised, const Operands& operands,
                              std::int64_t most_elements = 1 << 16);

/// Whether D and another program's, of the same inputs, about N(0,1), agree on some of the rows that are computed
/// within the rounding of either, also of one that rounds the parts of a split sum to D's type. Empty if they do, else
/// where they do not.
std::string compare_rows(Backend& backend, const Problem& normalised, const Operands& operands, const void* other,
                         std::int64_t rows = 6);

}  // namespace jitgemm::cli
