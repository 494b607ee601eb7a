#pragma once

#include "core/problem.hpp"
#include "jitgemm/kernel_config.hpp"

namespace jitgemm {

/// A problem as kernel_problem() makes it.
class KernelProblem : public Problem {
 public:
  Sharding sharding = Sharding::none;

 private:
  explicit KernelProblem(const Problem& problem) : Problem(problem) {}
  friend KernelProblem kernel_problem(const NormalProblem& normalised, const KernelConfig& config);
};

/// The problem as the GEMM kernel sees it: packed operands lie in the workspace (kernels/packing.hpp). With swap_ab it
/// computes D^T = op(B)^T op(A)^T: M and N, A and B, and the directions of the bias change places, while C and D stay
/// where they are in memory (the kernel's SWAP_AB).
KernelProblem kernel_problem(const NormalProblem& normalised, const KernelConfig& config);

}  // namespace jitgemm
