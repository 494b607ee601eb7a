#pragma once

#include "jitgemm/problem.hpp"

namespace jitgemm::cli {

/// Whether the problem multiplies anything; else there is nothing to tune.
bool multiplies(const Problem& problem);
/// Of a problem that takes so long. Operations on integers count as well.
double tflops(const Problem& problem, double us);

}  // namespace jitgemm::cli
