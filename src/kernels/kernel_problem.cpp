#include "kernels/kernel_problem.hpp"

#include <utility>

#include "kernels/packing.hpp"

namespace jitgemm {

KernelProblem kernel_problem(const NormalProblem& normalised, const KernelConfig& config) {
  KernelProblem p(packed_problem(normalised, config));
  if (!config.swap_ab) return p;
  std::swap(p.m, p.n);
  std::swap(p.a, p.b);
  for (Matrix* matrix : {&p.a, &p.b})
    matrix->layout = matrix->layout == Layout::row_major ? Layout::column_major : Layout::row_major;
  Bias& bias = p.epilogue.bias;
  if (bias == Bias::along_m)
    bias = Bias::along_n;
  else if (bias == Bias::along_n)
    bias = Bias::along_m;
  return p;
}

}  // namespace jitgemm
