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
  std::size_t corpus = 0;  ///< which weigh the same, however many problems they have
};

/// A kernel, by one of the calls that use it.
struct CoverKernel {
  NormalProblem problem;
  KernelConfig config;
};

/// Few kernels for many problems. A configuration's grid and splits are no part of its kernel: see refits().
struct KernelCover {
  std::size_t needed = 0;            ///< distinct kernels of the best choices
  std::vector<CoverKernel> kernels;  ///< the first k are the set of k
  /// Regret, over the problems that have a kernel.
  struct Quality {
    double geomean = 0, p95 = 0;                ///< with the fastest choice that the set has
    double chosen_geomean = 0, chosen_p95 = 0;  ///< with the one that the cost model ranks first of them
    std::size_t without_kernel = 0;             ///< problems
  };
  std::vector<Quality> quality;                         ///< of the first 1, 2, ... kernels
  std::vector<std::vector<Quality>> quality_of_corpus;  ///< the same, by corpus
};

struct KernelCoverOptions {
  std::vector<std::size_t> sizes;  ///< ascending; sets of these sizes are to be good, the last one's is the list
  /// Kernels that differ only in the types and layouts that they are compiled for count as one.
  bool any_types = false;
  /// A kernel serves a problem by the configurations of it that were measured, and else not at all. Of what nobody
  /// timed, a set would be asked for the prediction that is the most wrong one.
  bool measured_only = false;
};

/// Grows the set by the kernel that lowers the cost most and then, at each size that is asked for, exchanges what came
/// since the last one while that lowers it. The cost grows with the logarithm of the regret, and faster, so that the
/// worst problems count too; half of it is that of the fastest choice, half that of the cost model's. A regret is a
/// time with the set over the best known time. A time is what was measured of the configuration, else predicted by the
/// cost model in proportion to what was measured of others, and no less than the best.
KernelCover cover_kernels(const std::vector<CoveredProblem>& problems, const KernelCoverOptions& options);

}  // namespace jitgemm
