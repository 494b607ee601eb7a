#pragma once

#include <utility>
#include <vector>

#include "jitgemm/constraints.hpp"
#include "kernels/legality.hpp"
#include "plan/rated_device.hpp"

namespace jitgemm {

/// A problem that a set of kernels is to serve.
struct CoveredProblem {
  NormalProblem problem;
  RatedDevice device;
  std::vector<std::pair<KernelConfig, double>> measured = {};  ///< microseconds
  Constraints constraints = {};
};

/// A kernel, by one of the calls that use it.
struct CoverKernel {
  NormalProblem problem;
  KernelConfig config;
};

/// Few kernels for many problems. A configuration's grid and splits are no part of its kernel.
struct KernelCover {
  std::size_t needed = 0;            ///< distinct kernels of the best choices
  std::vector<CoverKernel> kernels;  ///< the first k are the set of k
  struct Quality {
    double geomean = 0, p95 = 0;     ///< regret, over the problems that have a kernel
    std::size_t without_kernel = 0;  ///< problems
  };
  std::vector<Quality> quality;  ///< of the first 1, 2, ... kernels
};

/// Adds, up to `most` times, the kernel that lowers the geometric mean of the regret most. The regret of a problem is
/// the least time with the set over the best time: measured, or predicted by the cost model in proportion to what is
/// measured, at least 1.
KernelCover cover_kernels(const std::vector<CoveredProblem>& problems, std::size_t most);

}  // namespace jitgemm
