#pragma once

#include <cstddef>
#include <optional>

#include "core/rank_problem.hpp"
#include "jitgemm/context.hpp"
#include "parallel/agreement.hpp"
#include "parallel/rank_tuning.hpp"

namespace jitgemm {

// What rank 0 chooses by measurements of all ranks. `staging_bytes`: TensorParallelOptions'. Not collective.

/// What is measured, and kept, in the problem's place: itself, without what changes no choice; with `bucket_m` of rows
/// a rank exchanges a power of two.
RankProblem measured_problem(const RankProblem& problem, bool bucket_m);

/// By the tuning database; nullopt if it has nothing that may be run.
std::optional<AgreedChoice> recorded_choice(Context& context, const RankProblem& problem, std::size_t staging_bytes);

/// What is worth measuring where `first` is chosen without: the cost model's best for overlapping, and what gemm()
/// would run, which tunes it. No candidates where nothing is to be measured.
RankTask task_for(Context& context, const RankProblem& problem, const AgreedChoice& first, std::size_t staging_bytes);

/// What was measured, which the tuning database keeps; `first` if it cannot be run.
AgreedChoice measured_choice(Context& context, const RankProblem& problem, const RankTask& task, const RankTimes& times,
                             const AgreedChoice& first, std::size_t staging_bytes);

}  // namespace jitgemm
