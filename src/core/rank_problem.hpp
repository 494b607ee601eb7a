#pragma once

#include "core/problem.hpp"
#include "jitgemm/exchange.hpp"

namespace jitgemm {

/// What becomes of a problem across ranks on each of them.
struct RankProblem {
  NormalProblem asked;
  Exchange exchange = Exchange::all_gather_a;
  int ranks = 1;
  std::int64_t rows_of_a = 0, rows_of_d = 0;  ///< that a rank has, and gets
  /// A collective carries something. Else each rank computes the rows that it gets alone: there is one rank, nothing is
  /// multiplied, or nothing is written.
  bool communicates = false;

  NormalProblem product;  ///< that a rank multiplies: of the gathered A, or without the epilogue where sums follow
  /// Of reduce_scatter_d and all_reduce_d: the rows of D that a rank gets and their epilogue, as a problem of k = 0.
  NormalProblem finish;
  bool finish_is_trivial = false;  ///< D is the sum as it travels, in one piece

  bool reduces() const { return exchange != Exchange::all_gather_a; }
  /// Partial sums and their sum: D's type, bf16 for one of 8 bits.
  DataType travelling_type() const { return product.d.type; }
};

/// Throws Error{invalid_problem} for what no exchange serves.
RankProblem rank_problem(const Problem& problem, Exchange exchange, int ranks);

/// Whether the product and its sum lie in the caller's D from the start: of all_reduce_d, where D is in one piece, and
/// nothing of what it holds is read.
bool sums_in_d(const RankProblem& problem);

/// Of a product whose sums the ranks add up: those of the call without its epilogue, and D where the sums lie.
Operands operands_of_sums(const RankProblem& problem, const Operands& operands, void* staging);

/// What preparing it depends on: two such problems of equal scalars but for their values are served alike.
NormalProblem prepared_shape(const RankProblem& problem);

/// Of the call's operands: Error{invalid_operand} for what any rank can see before anything is launched. `product`:
/// with the staging memory that the product reads or writes.
void check_operands(const RankProblem& problem, const Operands& operands, const Operands& product);

}  // namespace jitgemm
