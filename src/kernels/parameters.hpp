#pragma once

#include "core/kernel_interface.hpp"
#include "jitgemm/kernel_config.hpp"
#include "kernels/kernel_problem.hpp"

namespace jitgemm {

/// What a kernel's geometry depends on, of the problem as the kernel sees it: templates/geometry.cuh.
device::KernelParameters parameters_of(const KernelConfig& config, const KernelProblem& kernel_problem);

/// Whether a group's rows are split evenly among its tiles, which are then narrower than BLOCK_N: where these rows are
/// wgmma's columns, and no other block of a cluster has the next ones.
bool narrows(const KernelConfig& config, const KernelProblem& kernel_problem);

/// Whether CTAs take the tiles of groups, which take unlike long, one by one as they are done, instead of every
/// ctas-th each; of a cluster the first block takes them, and tells the others.
bool fetches(const KernelConfig& config, const KernelProblem& kernel_problem);

/// Thread blocks.
inline int cluster_size_of(const KernelConfig& config) {
  return config.cluster_m * config.cluster_n * config.cluster_k;
}

}  // namespace jitgemm
