#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "jit/kernel_store.hpp"
#include "jitgemm/plan.hpp"
#include "plan/ranking.hpp"

namespace jitgemm {

/// Of the cost model's first choices. The best of 12 were within 1 % of the best known in the mean and 7 % in the 95th
/// percentile (tools/results/NOTES.md, 24).
inline constexpr int tuned_candidates = 20;
/// Where all are compiled, the best of 40 is faster than that of 20 by 0.1 % on aligned shapes, 0.3 % in decoding and
/// 1.7 % on squares, half of whose candidates are the other half with operands swapped (58).
inline constexpr int most_candidates = 40;

struct TuneOptions {
  double budget_seconds = 1.0;        ///< for all of it with kernels cached; compiling them takes up to 0.6 of it more
  bool waits_for_kernels = false;     ///< however long compiling them takes
  int candidates = tuned_candidates;  ///< most that are measured
  /// (done, total): the candidates compiled and checked, of how many. Called between measurements by the calling
  /// thread; what it throws ends the tuning.
  std::function<void(int, int)> progress = {};
  std::exception_ptr* why_nothing = nullptr;  ///< gets what kept it from measuring, which is logged otherwise
};

struct TuneResult {
  KernelConfig config;
  bool complete = true;     ///< no candidate was left out for want of time
  bool kept_first = false;  ///< the model's first choice, which another was ahead of by less than the noise
  double median_us = 0, spread = 0;
  std::vector<TunedCandidate> candidates;
  int samples = 0;  ///< batches of launches timed, over all candidates
  double seconds = 0;
};

/// How many Context::tune() measures, which waits for their kernels: most_candidates, or fewer, down to
/// tuned_candidates, where the first rounds of so long a problem would take more than half of the time for measuring.
/// On the emulator, which compiles slowly and times nothing, tuned_candidates.
int candidates_for(const NormalProblem& problem, const RatedDevice& device, const Constraints& constraints,
                   double budget_seconds);

/// In words: the fastest, or the model's first choice that no other beat by more than the noise.
std::string why_chosen(const TuneResult& result);

/// The three fastest besides the winner.
std::vector<MeasuredConfig> runners_up_of(const TuneResult& result);

/// Names the set that these configurations are, in whatever order: 16 hex digits.
std::string candidate_set(const std::vector<RankedConfig>& ranked);

/// Measures the best-ranked candidates of a normalised problem, with groups a typical one (core/groups.hpp), on scratch
/// operands and a stream of its own: warm-up, interleaved repeats, inputs rotated past the L2, near-ties again. Two
/// candidates are compared by the ratios of their times of the same rounds. The model's first choice is always measured
/// and kept unless another beats it by more than the noise. A candidate's D is checked on the device, by a kernel
/// without which nothing is measured (output_check.hpp); one that fails to compile, launch or agree is reported and
/// skipped. Not for a thread that captures a stream.
///
/// It stops early: from eight rounds on, a candidate is out, with no more samples, once the fastest is ahead of it by
/// 0.5 % and by five standard errors of the median ratio, and measuring ends when all others are out. Of two with
/// normal times, one such look puts the faster out in 1 of 200 cases, all of them in 1 of 115; what is lost is as small
/// as the difference. Who is neither out nor far behind gets all rounds. The budget bounds it all.
///
/// nullopt when nothing could be measured (out of memory, no kernel that runs, no D); never throws for that, only what
/// the progress callback does.
std::optional<TuneResult> tune(Backend& backend, KernelStore& store, const NormalProblem& problem,
                               const std::vector<RankedConfig>& ranked, const TuneOptions& options);

}  // namespace jitgemm
