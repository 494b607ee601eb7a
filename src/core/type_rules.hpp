#pragma once

#include <string>

#include "jitgemm/problem.hpp"

namespace jitgemm {

/// Which types go together: the table at Problem, as code. Empty, or the rule that the problem breaks and the way out.
std::string why_types_unsupported(const Problem& problem);

/// f32, f64 or s32: of sums, partial tiles, alpha and beta.
DataType accumulator_of(DataType a);
inline DataType accumulator_of(const Problem& problem) { return accumulator_of(problem.a); }

/// Of C and bias.
DataType type_of_c(const Problem& problem);

inline bool is_fp8(DataType type) { return type == e4m3 || type == e5m2; }
/// Without tensor cores.
inline bool is_simt(DataType a) { return a == f32; }

}  // namespace jitgemm
