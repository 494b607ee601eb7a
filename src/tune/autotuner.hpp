#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <vector>

#include "backend/backend.hpp"
#include "jit/kernel_store.hpp"
#include "plan/cost_model.hpp"

namespace jitgemm {

struct TuneOptions {
  double budget_seconds = 1.0;  ///< for compiling and measuring, from when the first candidate is compiled
  int candidates = 24;          ///< most that are measured
  std::function<void(int, int)> progress = {};  ///< (done, total), called by the calling thread
  std::exception_ptr* why_nothing = nullptr;    ///< gets what kept it from measuring, which is logged otherwise
};

struct TuneResult {
  KernelConfig config;
  double median_us = 0, spread = 0;
  std::vector<TunedCandidate> candidates;
  double seconds = 0;
};

/// Measures the best-ranked candidates of a normalised problem on scratch operands and a stream of its own: warm-up,
/// interleaved repeats, inputs rotated past the L2, near-ties again. The model's first choice is always measured and
/// kept unless another beats it by more than the noise. A candidate's D is checked against a reference and the others'
/// D; one that fails to compile, launch or agree is reported and skipped. Not for a thread that captures a stream.
/// nullopt when nothing could be measured (out of memory, no kernel that runs, no D); never throws for that.
std::optional<TuneResult> tune(Backend& backend, KernelStore& store, const Problem& problem,
                               const std::vector<RankedConfig>& ranked, const TuneOptions& options);

}  // namespace jitgemm
