#pragma once

#include <optional>
#include <string>

#include "plan/planner.hpp"
#include "tune/tuning_db.hpp"

namespace jitgemm {

/// A neighbour's configuration that the cost model expects to take more than this times its own best is not taken.
inline constexpr double most_expected_regret = 1.10;

/// Puts into a nearest answer, and its reason, how many times the model's own best the model expects it to take.
/// Returns that best, with the reason in *why, if it is to be taken instead. Exact answers stay as they are.
std::optional<RankedConfig> judge_nearest(TuningLookup& found, const Planner& planner, std::string* why);

}  // namespace jitgemm
