#pragma once

#include <string>

#include "core/data_types.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

/// Which types go together: the table at Problem, as code. Empty, or the rule that the problem breaks and the way out.
std::string why_types_unsupported(const Problem& problem);

/// f32, f64 or s32: of sums, partial tiles, alpha and beta.
inline DataType accumulator_of(DataType a) { return info_of(a).accumulator; }
inline DataType accumulator_of(const Problem& problem) { return accumulator_of(problem.a.type); }

/// Of C and bias: what goes with D's where the problem says automatic.
DataType type_of_c(const Problem& problem);

inline bool is_fp8(DataType type) { return info_of(type).is_short_float() && info_of(type).bits == 8; }
/// Without tensor cores.
inline bool is_simt(DataType a) { return !info_of(a).tensor_cores; }

}  // namespace jitgemm
