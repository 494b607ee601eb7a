#pragma once

#include "core/problem.hpp"

namespace jitgemm {

/// What is measured, and kept, in the place of a problem whose shape_of() this is: itself, without what changes no
/// choice; a typical problem in the place of groups; with `bucket_m` the next power of two of M.
NormalProblem tuned_shape(const NormalProblem& shape, bool bucket_m);

/// Whether what was measured in the place of a shape took what the shape takes.
bool takes_as_long(const NormalProblem& tuned, const NormalProblem& shape);

}  // namespace jitgemm
