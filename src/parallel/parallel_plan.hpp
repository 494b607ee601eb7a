#pragma once

#include "core/rank_problem.hpp"
#include "parallel/agreement.hpp"

namespace jitgemm {

/// Of what was chosen, by the rank with this number. `gemm`: of its product alone.
ParallelPlan plan_of(const RankProblem& problem, const AgreedChoice& choice, Plan gemm, int rank);

}  // namespace jitgemm
