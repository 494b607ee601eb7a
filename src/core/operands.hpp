#pragma once

#include "core/problem.hpp"

namespace jitgemm {

/// Alignments from the pointers of a call. Throws Error{invalid_operand} for a null, misaligned or overlapping operand.
NormalProblem with_operands(const NormalProblem& problem, const Operands& operands);

}  // namespace jitgemm
