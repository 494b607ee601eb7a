#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "core/problem.hpp"
#include "jitgemm/options.hpp"
#include "jitgemm/plan.hpp"
#include "kernels_at_hand.hpp"
#include "plan/planner.hpp"
#include "tune/autotuner.hpp"
#include "tune/tuning_db.hpp"

namespace jitgemm {

/// A configuration, and why.
struct Choice {
  KernelConfig config;
  PlanSource source = PlanSource::model;
  std::string why;
  double predicted_us = 0, measured_us = 0, spread = 0;
  double expected_regret = 0;  ///< of a nearest one, and of one at hand
  std::vector<MeasuredConfig> runners_up = {};
  bool tuned = false;  ///< of the best that was to be had for this problem; measuring again would tell nothing new
};

struct ChooserOptions {
  Tuning tuning = Tuning::on;
  double budget_seconds = 0;        ///< of one problem
  double total_budget_seconds = 0;  ///< of all that choose() measures
  bool bucket_m = false;
  double at_hand_within = 0;  ///< of ContextOptions
  Constraints constraints = {};
  std::optional<std::filesystem::path> tuning_db, system_tuning_db;
  /// What was measured of kernels at hand alone, which is no one else's best.
  std::optional<std::filesystem::path> at_hand_db, system_at_hand_db;
  std::function<void(const Problem&, int done, int total)> progress = {};  ///< of ContextOptions
};

/// Chooses configurations for normalised problems, within constraints. What choose() has settled once stays, until
/// tune(). Thread-safe.
class Chooser {
 public:
  /// `device`: the backend's.
  Chooser(Backend& backend, KernelStore& store, KernelsAtHand& at_hand, RatedDevice device,
          const ChooserOptions& options);

  /// Without measuring.
  Choice preview(const NormalProblem& problem);
  /// May measure, one problem at a time, when tuning is on; throws what the progress callback does. `settled` is false
  /// if a later call may choose better.
  Choice choose(const NormalProblem& problem, bool may_measure, bool* settled = nullptr);
  /// The cost model's, of those that need no more workspace than this. Error{workspace_too_small} where all need more.
  Choice choose_within(const NormalProblem& problem, std::size_t workspace_bytes);
  struct Tuned {
    Choice choice;
    TuneResult result;
  };
  /// Measures and stores, whatever was known. Throws what kept it from measuring anything.
  Tuned tune(const NormalProblem& problem, const std::function<void(int, int)>& progress);

  // Of products across ranks, which their ranks measure together.
  /// What has been measured of one; none, too, where tuning is off, or kernels at hand are to serve.
  TuningLookup find(const NormalProblem& shape, const AcrossRanks& across);
  /// That measuring one may take now; 0 where nothing is measured.
  double seconds_to_measure();
  /// Keeps what was measured in so many seconds. The record's device, constraints and library are filled in.
  void keep(const TuningRecord& record, double seconds);

  /// Of what choose() may choose for the problem. Both outlive it.
  Planner planner(const NormalProblem& problem) const { return {problem, part_, options_.constraints}; }

  const RatedDevice& device() const { return device_; }
  const Constraints& constraints() const { return options_.constraints; }
  bool buckets_m() const { return options_.bucket_m; }
  std::uint64_t tuned() const { return tuned_; }

 private:
  std::optional<Choice> remembered(const NormalProblem& shape);
  /// Remembers nothing if forget() has come since `generation`: then the choice may be an old one.
  void remember(const NormalProblem& shape, const Choice& choice, std::uint64_t generation);
  void forget();
  /// `shape`, here and below: shape_of() the problem.
  Choice look_up(const Planner& planner, const NormalProblem& shape);
  Choice free_choice(const Planner& planner, const NormalProblem& shape);
  /// The choice, or what ContextOptions::at_hand_within has instead.
  Choice bounded(const Planner& planner, const NormalProblem& shape, const Choice& choice);
  bool is_bounded() const { return options_.at_hand_within > 0; }
  /// With the device, the constraints and the library.
  TuningRecord from_here(TuningRecord record) const;
  /// What measurements say for a kernel at hand, or for the choice in spite of it. `predicted`: the model's first of
  /// the kernels at hand, if one is expected to take no longer than it may.
  std::optional<Choice> measured_at_hand(const Planner& planner, const NormalProblem& shape, const Choice& choice,
                                         const std::optional<RankedConfig>& predicted);
  /// What measuring a problem compares: the model's first choices, of kernels at hand where those are to serve.
  std::vector<RankedConfig> to_measure(const Planner& planner, std::size_t count);
  /// None where no configuration is legal within the constraints.
  static std::optional<Choice> first_of(const Planner& planner);
  Choice by_model(const Planner& planner) const;
  /// By what has just been measured in the shape's place, with times where they are the shape's.
  Choice measured_choice(const Planner& planner, const NormalProblem& shape, const TuneResult& result);
  std::optional<TuneResult> measure(const NormalProblem& problem, TuneOptions options);
  /// Whether gemm() would measure before it settles on the choice.
  bool measures(const NormalProblem& problem, const Choice& choice) const;

  Backend& backend_;
  KernelStore& store_;
  KernelsAtHand& at_hand_;
  const ChooserOptions options_;
  const RatedDevice device_;
  const RatedDevice part_;  // of it, that calls may use
  TuningDb db_, at_hand_db_;
  /// Waits for measuring_ and holds it, of a thread that knows, so that what a progress callback calls does not wait
  /// for itself.
  class Measuring;
  bool measures_here() const;
  /// To the callback of the call, if it has one, and to that of the options.
  void report_progress(const NormalProblem& problem, const std::function<void(int, int)>& of_call, int done,
                       int total) const;

  std::timed_mutex measuring_;  // two measurements at once would disturb each other
  std::atomic<double> spent_seconds_ = 0;
  std::atomic<std::uint64_t> tuned_ = 0;
  std::shared_mutex settled_mutex_;
  std::atomic<std::uint64_t> generation_ = 0;                                     // of settled_
  std::unordered_map<NormalProblem, Choice, ProblemHash, ProblemEqual> settled_;  // by shape_of() what is asked
};

}  // namespace jitgemm
