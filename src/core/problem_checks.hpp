#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/operand_matrix.hpp"
#include "core/pairing.hpp"
#include "core/type_rules.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

// What a problem and the operands of a call are both checked by.

/// Throws Error of the code, with the problem's text.
[[noreturn]] void invalid(ErrorCode code, const std::string& message, const Problem& problem);

/// The largest power of two that divides x, at most 16; 16 for 0.
inline int alignment_of(std::uint64_t x) { return int((x | 16) & -(x | 16)); }

/// TMA clips what it stores to 16 bytes, not to elements: a row of D has to end at such a boundary, too.
inline int row_end_alignment(const Problem& p) {
  return alignment_of(std::uint64_t(columns_of_d(p)) * size_of(p.d.type));
}

/// Fills in and checks an operand's leading dimension, which errors call `ld_name`, its batch stride and alignment.
void normalise_matrix(const std::string& name, const std::string& ld_name, const OperandMatrix& operand, Matrix& matrix,
                      const Problem& problem);

/// As the kernel gets it; -0 and 0, and all NaN, become one value.
double as_scalar(std::string_view name, double x, const Problem& problem);

}  // namespace jitgemm
