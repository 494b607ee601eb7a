#pragma once

#include "jitgemm/problem.hpp"

namespace jitgemm {

/// Of the product of a node's ranks, whose batch is its shards of rows: those of A come from the ranks that they are of
/// while the kernel runs, or D's sums go to them (templates/shards_sm90.cuh).
enum class Sharding : std::uint8_t { none, gathered_a, scattered_d };

/// A problem as normalise() makes it, or a part of one. What is chosen, compiled and launched is always of this form;
/// a plain Problem is what a caller asks for.
class NormalProblem : public Problem {
 public:
  NormalProblem();  ///< of the empty problem

  Sharding sharding = Sharding::none;

 private:
  explicit NormalProblem(const Problem& problem) : Problem(problem) {}
  friend NormalProblem normalise(const Problem& problem);
};

/// The problem with its leading dimensions filled in, and what does not matter set to its default (the slope of another
/// activation, C's alignment without beta, the accumulation of other than 8-bit floating-point products), so that equal
/// work compares equal. Alignments come out as the largest vector, in bytes and at most 16, that every row (column)
/// start of the operand is a multiple of, and for D every row end, too. Throws Error{invalid_problem} for what no
/// kernel can serve.
NormalProblem normalise(const Problem& problem);

/// The part that the kernel source and the choice of a configuration depend on: scalars reduced to whether they are
/// zero.
NormalProblem shape_of(const NormalProblem& problem);

/// The problem without an epilogue function of the caller's own; with a D of N columns, if that made it half as wide.
NormalProblem without_epilogue_function(const NormalProblem& problem);

bool equal(const Problem& x, const Problem& y);
std::size_t hash_value(const Problem& problem);
/// Problems as keys.
struct ProblemHash {
  std::size_t operator()(const Problem& problem) const { return hash_value(problem); }
};
struct ProblemEqual {
  bool operator()(const Problem& x, const Problem& y) const { return equal(x, y); }
};

inline bool is_empty(const Problem& p) { return p.m == 0 || p.n == 0 || p.batch == 0; }
inline bool reads_ab(const Problem& p) { return p.alpha != 0 && p.k != 0 && !is_empty(p); }
inline bool reads_c(const Problem& p) { return p.beta != 0; }
/// Bytes that the problem must move through device memory at least.
double minimum_bytes(const Problem& problem);
/// What an epilogue moves for each of the product's sums, of which a gated one has two for an element of D: that, C and
/// other matrices.
double epilogue_bytes_per_sum(const Problem& problem);
/// Where the device counts rows, of all that there may be.
double flops(const Problem& p);
/// Microseconds that a problem takes at least on an H200: max(flops / what tensor cores sustain,
/// bytes / 4.2 TB/s) + 2 us.
double floor_us(const Problem& problem);

}  // namespace jitgemm
