#pragma once

#include <vector>

#include "measure/check.hpp"

namespace jitgemm::cli {

/// Compares D and the outputs of a problem's epilogue of the caller's own on these rows and columns of D with its
/// function of float64 sums. What rounding may make of the sums is found by the function itself, around them.
void check_epilogue(Backend& backend, const Problem& normalised, const Operands& operands,
                    const std::vector<RowOfD>& rows, const std::vector<std::int64_t>& columns, Check& check);

}  // namespace jitgemm::cli
