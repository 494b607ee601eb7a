#pragma once

#include "jitgemm/kernel_config.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

/// The problem as the GEMM kernel sees it: packed operands lie in the workspace (kernels/packing.hpp). With swap_ab it
/// computes D^T = op(B)^T op(A)^T: M and N, A and B, and the directions of the bias change places, while C and D stay
/// where they are in memory (the kernel's SWAP_AB).
Problem kernel_problem(const Problem& normalised, const KernelConfig& config);

}  // namespace jitgemm
