#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "jitgemm/exchange.hpp"
#include "jitgemm/kernel_config.hpp"
#include "parallel/communicator.hpp"

namespace jitgemm {

inline constexpr std::size_t most_rank_candidates = 8;

/// One way to compute a product across ranks.
struct RankCandidate {
  ParallelMethod method = ParallelMethod::unfused;
  KernelConfig config;
};

/// What ranks measure together.
struct RankTask {
  std::vector<RankCandidate> candidates;  ///< what is chosen without measuring first; most_rank_candidates at most
  double budget_seconds = 0;
  bool bucket_m = false;  ///< see measured_problem()
  bool emulated = false;
};

/// Collective. What rank 0 gives, to all.
RankTask task_of_first(Communicator& communicator, const RankTask& task);

/// What one rank does to have its task's candidates measured, by their numbers. Any of it may throw. What is not
/// collective may do so on one rank alone.
class RankArms {
 public:
  virtual ~RankArms() = default;
  virtual void allocate() = 0;  ///< first of all: operands
  virtual void compile(std::size_t candidate) = 0;
  virtual void stage(std::size_t candidate) = 0;               ///< collective: memory, on all ranks or on none
  virtual void run(std::size_t candidate) = 0;                 ///< collective: once, done on return
  virtual void prepare(std::size_t candidate, int calls) = 0;  ///< of each sample
  virtual double sample(std::size_t candidate) = 0;            ///< collective: microseconds of a call
};

/// Rank 0's answer.
struct RankTimes {
  std::size_t candidate = 0;  ///< the fastest, or the first one, if none is ahead of it by more than the noise
  bool kept_first = false;    ///< another was the fastest
  int measured = 0;           ///< candidates
  double median_us = 0, spread = 0;
  double seconds = 0;  ///< that all of it took
};

/// Collective. Compares the candidates in turns (tune/contest.hpp), whose order rank 0 draws; before each sample all
/// ranks meet, and its time is the slowest rank's. What fails on one rank is skipped on all. Rank 0 says what comes
/// next, and so when the budget is spent: 0.6 of it on making candidates ready, from when the first one is compiled,
/// but for two, which are waited for; and 0.8 on measuring them, a round at least.
///
/// nullopt, with one line in rank 0's log, where a rank is out of memory, or fewer than two candidates could be
/// measured; and on all ranks but rank 0. Throws Error{peer_lost} and Error{communicator_failed} alone.
std::optional<RankTimes> measure_together(Communicator& communicator, RankArms& arms, const RankTask& task);

}  // namespace jitgemm
