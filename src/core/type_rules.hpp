#pragma once

#include <string>

#include "core/data_types.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

/// Which types go together: the table at Problem, as code. Empty, or the rule that the problem breaks and the way out.
std::string why_types_unsupported(const Problem& problem);

/// f32, f64 or s32: of sums and partial tiles.
inline DataType accumulator_of(DataType a) { return info_of(a).accumulator; }
inline DataType accumulator_of(const Problem& problem) { return accumulator_of(problem.a.type); }

/// f32, f64 or s32: of alpha and beta, in which a sum becomes an element of D.
inline DataType compute_type_of(const Problem& problem) {
  const DataType accumulator = accumulator_of(problem);
  return accumulator == s32 && !info_of(problem.d.type).is_integer() ? f32 : accumulator;
}

/// Of C and bias: what goes with D's where the problem says automatic.
DataType type_of_c(const Problem& problem);

inline bool is_fp8(DataType type) { return info_of(type).is_short_float() && info_of(type).bits == 8; }
/// Whether its A and B may have scales, and D is alpha times the product of them all.
inline bool takes_scales(const Problem& problem) {
  return is_fp8(problem.a.type) || (info_of(problem.a.type).is_integer() && compute_type_of(problem) == f32);
}
inline bool has_vector_scales(const Problem& problem) {
  return problem.a.scaling == Scaling::vector || problem.b.scaling == Scaling::vector;
}
inline bool is_of_blocks(Scaling scaling) {
  return scaling == Scaling::block_1x128 || scaling == Scaling::block_128x128;
}
inline bool has_own_scales_d(const Problem& problem) { return problem.d.scaling == Scaling::block_1x128; }
inline bool has_block_scales(const Problem& problem) {
  return is_of_blocks(problem.a.scaling) || is_of_blocks(problem.b.scaling);
}
/// Without tensor cores.
inline bool is_simt(DataType a) { return !info_of(a).tensor_cores; }

}  // namespace jitgemm
