#pragma once

#include "chooser.hpp"

namespace jitgemm {

/// The facts of a choice for a normalised problem, before anything is compiled. Of a pinned one, the constraints are
/// left out.
Plan plan_of(const NormalProblem& problem, const Choice& choice, const RatedDevice& device,
             const Constraints& constraints);

}  // namespace jitgemm
