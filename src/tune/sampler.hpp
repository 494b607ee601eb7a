#pragma once

#include <functional>
#include <memory>

#include "jit/call.hpp"
#include "tune/measurement.hpp"
#include "tune/scratch.hpp"

namespace jitgemm {

/// A configuration's kernels, and what is timed of them.
struct Runnable : Ready {
  int launches = 0, neighbours = 0;      // of a sample
  double about_us = 0;                   // that it takes
  std::shared_ptr<Recording> recording;  // of it
};

/// Runs and times configurations of one problem on scratch operands and a stream of its own. A sample is a recording of
/// many calls, with inputs rotated past the L2: the first half one behind the other, where starting early gains and
/// what several calls do to each other shows; the second half each behind a small kernel, as streams of others have
/// them between calls. Rows come to groups by chance, in every other call to some much more often.
class Sampler {
 public:
  Sampler(Backend& backend, const NormalProblem& problem, std::size_t workspace_bytes, int counters);

  Operands operands_as_batch() const { return scratch_.operands_as_batch(0); }
  Stream stream() const { return timer_.stream(); }
  /// Once, on the first set of operands, rows dealt equally; done on return.
  void run(const Runnable& runnable);
  /// Warms up, and records what a sample takes. `expected_us`: of a call; 0: a short one.
  void prepare(Runnable& runnable, double expected_us);
  /// Microseconds of a call, without those of the neighbours.
  double sample(const Runnable& runnable);

 private:
  void launch_call(const Ready& ready, int set, Distribution distribution, Stream stream);
  void record(Runnable& runnable, int launches);
  double time_us(Recording& recording, double about_us);
  void time_neighbour();
  int next_set() { return set_ = (set_ + 1) % scratch_.sets(); }

  Backend& backend_;
  const NormalProblem& problem_;
  Scratch scratch_;
  LaunchTimer timer_;
  std::function<device::TensorMap(const TensorMapSpec&)> encode_;
  int set_ = 0;
  std::unique_ptr<Recording> neighbours_;  // most_launches of them; none where there is none
  double neighbour_us_ = 0;
};

}  // namespace jitgemm
