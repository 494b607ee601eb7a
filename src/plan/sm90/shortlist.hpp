#pragma once

#include "plan/constraints.hpp"
#include "plan/ranking.hpp"

namespace jitgemm {

/// Of the best schedules: first tiles, by the ways to deal out their work that decide most, then all schedules of the
/// best of them, of which the legal ones are kept.
std::vector<RankedConfig> shortlist_sm90(const NormalProblem& problem, const RatedDevice& device, std::size_t limit,
                                         const ConstraintFilter* filter);

}  // namespace jitgemm
