#pragma once

#include <cstdint>
#include <string>

#include "core/operand_matrix.hpp"
#include "jitgemm/epilogue.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

inline constexpr std::size_t most_epilogue_operands = 8;

/// One that define_epilogue() has taken. Lives as long as the process.
struct DefinedEpilogue {
  EpilogueFunction function;
  std::string text;  ///< to_string() of it
};

/// Null if the process has not defined it.
const DefinedEpilogue* find_epilogue(std::uint64_t digest);
/// That of a normalised problem, which has one.
const EpilogueFunction& epilogue_function(const Problem& problem);
inline bool has_epilogue_function(const Problem& problem) { return problem.epilogue.function != 0; }

/// Why kernels cannot apply it to this problem; empty if they can.
std::string why_epilogue_unsupported(const Problem& problem);

/// Of the function's text, in which each operand has a line: where its code begins.
int first_code_line(const EpilogueFunction& function);
std::string_view to_string(OperandShape shape);
std::string_view to_string(Pairing pairs);

/// An operand in device memory as the call has it: vectors are matrices of one row.
OperandMatrix matrix_of(const EpilogueOperand& operand, const EpilogueValue& value, const Problem& problem);
/// That its operands have, packed.
double epilogue_bytes(const Problem& problem);

}  // namespace jitgemm
