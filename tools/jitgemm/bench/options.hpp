#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/draw.hpp"
#include "common/options.hpp"
#include "measure/protocol.hpp"

namespace jitgemm::cli {

struct BenchOptions {
  ProblemOptions problem;
  std::string shapes, csv, json, main_loop, triton_manifest;
  std::string tuned_as;  ///< a CSV file of an earlier run
  std::vector<std::string> configs;
  std::string kernels;  ///< a file of those in the draw
  Draw draw;
  bool model = false, tuned = false, best = false, peers = true, frozen = false, resume = false;
  int repeats = 0;
  bool derived = false;
  std::vector<std::string> choices;  ///< NAME=DIR
  int finalists = 0;
  bool without_early = false, invariant = false;
  std::optional<double> at_hand;
  std::string protocol;   ///< rep, mix or both; empty: both, on the emulator rep
  std::string neighbour;  ///< small or large; empty: small
  bool eager = false;
  bool scales = false;       ///< of A and B, for both sides
  std::string distribution;  ///< of rows among groups; empty: uniform
  std::string built_in;      ///< fields of a problem that say what the epilogue of one's own says
  double seconds_per_shape = 0.8;
  std::optional<double> tune_seconds;
  DeviceOptions device;

  /// Without measuring.
  bool choices_known() const { return frozen || !tuned_as.empty(); }
};

/// What each shape is timed by.
std::vector<Protocol> protocols_of(const BenchOptions& options, bool emulated);

/// Throws Error for what cannot be measured.
ContextOptions context_options_of(const BenchOptions& options);

/// Times the arms that are asked for on each shape. Throws Error, also at the end if a shape failed.
void bench(const BenchOptions& options);

}  // namespace jitgemm::cli
