#pragma once

#include <functional>
#include <optional>

#include "jit/call.hpp"
#include "tune/measurement.hpp"
#include "tune/scratch.hpp"

namespace jitgemm {

/// A configuration's kernels, and how they are to be timed.
struct Runnable : Ready {
  int launches = 1;          // of a batch between two events
  std::optional<Step> lead;  // of something longer instead of its own
  int lead_launches = 1;     // before the batch
};

/// Runs and times configurations of one problem on scratch operands and a stream of its own.
class Sampler {
 public:
  Sampler(Backend& backend, const NormalProblem& problem, std::size_t workspace_bytes, int counters);

  Operands operands() const { return scratch_.operands(0); }
  Stream stream() const { return timer_.stream(); }
  /// Once, on operands(); done on return.
  void run(const Runnable& runnable);
  /// Warms up, and finds out how many launches and what lead a sample takes.
  void prepare(Runnable& runnable);
  /// Microseconds of a call: a batch of them, with inputs rotated past the L2.
  double sample(const Runnable& runnable);

 private:
  using Call = std::vector<Step>;
  Call make_call(const Runnable& runnable, int set);
  void launch_call(const Call& call);
  void prepare_lead(Runnable& runnable);
  int next_set() { return set_ = (set_ + 1) % scratch_.sets(); }

  Backend& backend_;
  const NormalProblem& problem_;
  Scratch scratch_;
  LaunchTimer timer_;
  std::function<device::TensorMap(const TensorMapSpec&)> encode_;
  int set_ = 0;
};

}  // namespace jitgemm
