#pragma once

#include "jitgemm/problem.hpp"

namespace jitgemm {

/// The problem with its leading dimensions filled in, and what does not matter set to its default (the slope of another
/// activation, align_c without beta, the accumulation of other than 8-bit floating-point products), so that equal work
/// compares equal. align_* come out as the largest vector, in bytes and at most 16, that every row (column) start of
/// the operand is a multiple of, and for D every row end, too. Throws Error{invalid_problem} for what no kernel can
/// serve.
Problem normalise(const Problem& problem);

/// Of a normalised problem, the part that the kernel source and the choice of a configuration depend on: alpha, beta
/// and slope reduced to whether they are zero.
Problem shape_of(const Problem& normalised);

/// align_* from the pointers of a call. Throws Error{invalid_operand} for a null, misaligned or overlapping operand.
Problem with_operands(const Problem& normalised, const Operands& operands);

bool equal(const Problem& x, const Problem& y);
std::size_t hash_value(const Problem& problem);

inline bool is_empty(const Problem& p) { return p.m == 0 || p.n == 0 || p.batch == 0; }
inline bool reads_ab(const Problem& p) { return p.alpha != 0 && p.k != 0 && !is_empty(p); }
inline bool reads_c(const Problem& p) { return p.beta != 0; }
/// Bytes that the problem must move through device memory at least.
double minimum_bytes(const Problem& problem);
inline double flops(const Problem& p) { return 2.0 * double(p.m) * double(p.n) * double(p.k) * double(p.batch); }
/// Microseconds that a problem takes at least on an H200: max(flops / what tensor cores sustain,
/// bytes / 4.2 TB/s) + 2 us.
double floor_us(const Problem& problem);

}  // namespace jitgemm
