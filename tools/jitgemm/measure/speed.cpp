#include "measure/speed.hpp"

#include "core/problem.hpp"

namespace jitgemm::cli {

bool multiplies(const Problem& problem) { return reads_ab(problem); }

double tflops(const Problem& problem, double us) { return 1e-6 * flops(problem) / us; }

}  // namespace jitgemm::cli
