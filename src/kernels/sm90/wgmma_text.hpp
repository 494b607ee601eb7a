#pragma once

#include <string>

#include "kernels/kernel_problem.hpp"

namespace jitgemm {

/// The macros WGMMA_TEXT and WGMMA_D of ptx/wgmma.cuh: the wgmma instructions of one k-block, for the problem's types
/// and layouts and a tile of block_n columns (PTX ISA, "wgmma.mma_async").
std::string wgmma_text(const KernelProblem& problem, int block_n);

}  // namespace jitgemm
