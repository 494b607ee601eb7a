#pragma once

#include <cstdint>
#include <string>

#include "core/problem.hpp"
#include "core/rank_problem.hpp"
#include "jitgemm/exchange.hpp"

namespace jitgemm {

/// Elements from one row to the next of what is staged for an operand of the type: rows begin at multiples of 16 bytes,
/// as TMA needs.
std::int64_t staged_ld(std::int64_t columns, DataType type);

/// Empty, or why communication cannot run under the product of these `ranks`: what the kernels do not have, in words.
std::string why_not_sharded(const Problem& problem, Exchange exchange, int ranks);

/// The product as one rank's kernel computes it: a batch of shards. Of one that why_not_sharded() says nothing against.
/// all_gather_a: A is what is staged; reduce_scatter_d: D is what the rank gets.
NormalProblem sharded_problem(const Problem& problem, Exchange exchange, int ranks);

/// What a rank's GEMM kernel computes by this method. Throws Error{invalid_problem} for what it does not serve.
NormalProblem problem_of(const RankProblem& problem, ParallelMethod method);

}  // namespace jitgemm
