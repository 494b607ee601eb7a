#pragma once

#include <string>
#include <vector>

#include "jitgemm/jitgemm.hpp"

namespace jitgemm::cli {

/// A shape that is to be tuned.
struct TuneTask {
  Problem problem;                       ///< normalised
  std::vector<KernelConfig> candidates;  ///< to compile; none where those at hand are measured
  double expected_seconds = 0;           ///< of measuring; good for comparing tasks
};

/// What tuning many problems comes to.
struct TunePlan {
  DeviceDescription device;
  int shapes = 0;               ///< distinct ones
  int tuned = 0;                ///< of these, already: of this device and library version, from the same candidates
  std::vector<TuneTask> tasks;  ///< the others, in the order given; with `again` all
};
/// Throws Error for a problem that cannot be tuned.
TunePlan plan_tuning(const std::vector<Problem>& problems, const ContextOptions& options, bool again);

/// What it would cost, by estimate.
struct TuneCost {
  std::size_t kernels = 0;  ///< distinct ones
  std::size_t cached = 0;   ///< of these, already
  double compile_seconds = 0, measure_seconds = 0;
};
TuneCost cost_of(const TunePlan& plan, const ContextOptions& options, int devices);

/// Throws Error{io}, with the reason, if the tuning database takes no result. Creates it.
void check_database(const ContextOptions& options);
/// Throws Error{io} if it has none for some of these, which were tuned.
void check_kept(const std::vector<Problem>& problems, const ContextOptions& options);

}  // namespace jitgemm::cli
