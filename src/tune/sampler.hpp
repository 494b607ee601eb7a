#pragma once

#include <functional>
#include <optional>

#include "jit/launcher.hpp"
#include "kernels/launch_shape.hpp"
#include "tune/measurement.hpp"
#include "tune/scratch.hpp"

namespace jitgemm {

/// A configuration's kernels, and how they are to be timed.
struct Runnable {
  struct Launch {
    LaunchShape shape;
    device::Arguments arguments;
  };

  KernelConfig config;
  LaunchShape shape;
  CallKernels kernels;
  int launches = 1;            // of a batch between two events
  std::optional<Launch> lead;  // of something longer instead of its own
  int lead_launches = 1;       // before the batch
};

/// Runs and times configurations of one problem on scratch operands and a stream of its own.
class Sampler {
 public:
  Sampler(Backend& backend, const Problem& problem, std::size_t workspace_bytes, int counters);

  Operands operands() const { return scratch_.operands(0); }
  /// Once, on operands(); done on return.
  void run(const Runnable& runnable);
  /// Warms up, and finds out how many launches and what lead a sample takes.
  void prepare(Runnable& runnable);
  /// Microseconds of a call: a batch of them, with inputs rotated past the L2.
  double sample(const Runnable& runnable);

 private:
  struct Call {
    std::vector<std::pair<LaunchShape, CallArguments>> launches;
  };
  Call make_call(const Runnable& runnable, int set);
  void launch(const Runnable& runnable, const Call& call);
  void launch_lead(const Runnable& runnable, const Runnable::Launch& lead);
  void prepare_lead(Runnable& runnable);
  int next_set() { return set_ = (set_ + 1) % scratch_.sets(); }

  Backend& backend_;
  const Problem& problem_;
  Scratch scratch_;
  LaunchTimer timer_;
  std::function<device::TensorMap(const TensorMapSpec&)> encode_;
  int set_ = 0;
};

}  // namespace jitgemm
