#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jitgemm/constraints.hpp"
#include "jitgemm/export.hpp"
#include "jitgemm/kernel_config.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

/// How good the answer is that chose a configuration, best first; and at_hand: a kernel that needs no compiler serves
/// in place of such a choice (ContextOptions::at_hand_within), the fastest measured where measured_us is above 0.
enum class PlanSource : std::uint8_t { pinned, exact, measured, nearest, model, fallback, at_hand };
JITGEMM_EXPORT std::string_view to_string(PlanSource source);

/// Where the cost model expects the time to go, in microseconds. `us` is less than the sum: memory and power run beside
/// the main loop and the epilogue, mostly hidden behind whichever takes longest.
struct PredictedTime {
  double us = 0;
  double launch_us = 0, packing_us = 0, main_loop_us = 0, epilogue_us = 0;
  double fixup_us = 0;   ///< of tiles that several CTAs share
  double memory_us = 0;  ///< what has to be read and written, at the device's rate
  double power_us = 0;   ///< all products, at the rate that the device's power sustains
};

/// A configuration and its measured time.
struct MeasuredConfig {
  KernelConfig config;
  double median_us = 0;
};

/// A choice, and why.
struct JITGEMM_EXPORT Plan {
  Problem problem;  ///< normalised: leading dimensions, strides and alignments as they are used
  KernelConfig config;
  PlanSource source = PlanSource::model;
  std::string why;
  PredictedTime predicted = {};  ///< by the cost model
  std::string rates = {};        ///< what the cost model knows of the device: an H200's, derived, or calibrated when
  double measured_us = 0;        ///< median; 0 when not measured
  double spread = 0;             ///< of the measurement: (p90 - p10) / median
  /// Of PlanSource::nearest: predicted.us over that of the cost model's own best choice; of PlanSource::at_hand, over
  /// that of the choice in whose place it serves; 0 for all others.
  double expected_regret = 0;
  /// Of the measurement, best first: the median of each one's times over the chosen one's of the same rounds, times
  /// measured_us. One may be the faster by less than the noise, where the cost model's first choice was kept.
  std::vector<MeasuredConfig> runners_up = {};
  Constraints constraints = {};  ///< that it was chosen under
  // The schedule's facts.
  std::string device;
  int tiles_m = 0, tiles_n = 0;
  int stream_k_tiles = 0, data_parallel_tiles = 0;
  int ctas = 0;                      ///< grid size of the launch
  int k_blocks_per_tile = 0;         ///< iterations per tile
  std::int64_t stream_k_blocks = 0;  ///< iterations in total that are dealt out k-block by k-block
  std::size_t workspace_bytes = 0, smem_bytes = 0;
  std::size_t packed_bytes = 0;  ///< of the workspace: the copies of packed operands
  int threads = 0;
  // Read back from the compiled kernel; -1 until it is compiled.
  int registers = -1, spill_bytes = -1;

  std::string explain() const;  ///< all of the above for people, several lines
  std::string json() const;     ///< and for programs: one object, in a line; problem and config as to_string() has them
};

struct TunedCandidate {
  KernelConfig config;
  double predicted_us = 0, measured_us = 0, spread = 0;
  std::string skipped;  ///< why it was not measured or not accepted; empty if it was
};

struct TuneReport {
  Plan plan;                               ///< the winner
  std::vector<TunedCandidate> candidates;  ///< in the order of the cost model
  double seconds = 0;
};

}  // namespace jitgemm
