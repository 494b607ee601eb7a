#include "chooser.hpp"

#include <algorithm>
#include <chrono>
#include <exception>

#include "core/epilogue_function.hpp"
#include "core/groups.hpp"
#include "core/type_rules.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/version.hpp"
#include "plan/family.hpp"
#include "tune/nearest.hpp"
#include "tune/tuned_shape.hpp"
#include "util/log.hpp"

namespace jitgemm {
namespace {

constexpr std::size_t most_settled = 1 << 16;  // then all are looked up again

std::string size_of_tuned(const NormalProblem& tuned) {
  if (!has_groups(tuned)) return "m=" + std::to_string(tuned.m);
  const std::string of = tuned.grouping == Grouping::along_k ? " of k" : tuned.expected_m == 1 ? " row" : " rows";
  return std::to_string(tuned.batch) + (tuned.batch == 1 ? " group" : " groups") + " of about " +
         std::to_string(tuned.expected_m) + of;
}

/// To follow on a reason: that of another size was measured.
std::string as_for(const NormalProblem& tuned, const NormalProblem& shape) {
  return takes_as_long(tuned, shape) ? std::string() : ", as for " + size_of_tuned(tuned);
}

}  // namespace

class Chooser::Measuring {
 public:
  /// Reports again and again until the measurement of another thread has ended; what that throws ends the wait.
  Measuring(Chooser& chooser, const NormalProblem& problem, const std::function<void(int, int)>& of_call = {}) {
    of_this_thread.push_back(&chooser);
    try {
      lock_ = std::unique_lock(chooser.measuring_, std::defer_lock);
      while (!lock_.try_lock_for(std::chrono::milliseconds(50)))
        chooser.report_progress(problem, of_call, 0, tuned_candidates);
    } catch (...) {
      of_this_thread.pop_back();
      throw;
    }
  }
  ~Measuring() { of_this_thread.pop_back(); }
  Measuring(const Measuring&) = delete;
  Measuring& operator=(const Measuring&) = delete;

  static bool is_of_this_thread(const Chooser& chooser) {
    return std::find(of_this_thread.begin(), of_this_thread.end(), &chooser) != of_this_thread.end();
  }

 private:
  static inline thread_local std::vector<const Chooser*> of_this_thread;  // the innermost last
  std::unique_lock<std::timed_mutex> lock_;
};

void Chooser::report_progress(const NormalProblem& problem, const std::function<void(int, int)>& of_call, int done,
                              int total) const {
  if (of_call) of_call(done, total);
  if (options_.progress) options_.progress(problem, done, total);
}

bool Chooser::measures_here() const { return Measuring::is_of_this_thread(*this); }

Chooser::Chooser(Backend& backend, KernelStore& store, KernelsAtHand& at_hand, RatedDevice device,
                 const ChooserOptions& options)
    : backend_(backend),
      store_(store),
      at_hand_(at_hand),
      options_(options),
      device_(std::move(device)),
      part_(part_of(device_, options.constraints)),
      db_(options.tuning_db, options.system_tuning_db),
      at_hand_db_(options.at_hand_db, options.system_at_hand_db) {}

Choice Chooser::preview(const NormalProblem& problem) {
  const NormalProblem shape = shape_of(problem);
  if (auto choice = remembered(shape)) return *choice;
  Choice choice = look_up(planner(problem), shape);
  if (measures(problem, choice)) choice.why += "; gemm() will measure first";
  return choice;
}

Choice Chooser::choose(const NormalProblem& problem, bool may_measure, bool* settled) {
  if (settled) *settled = true;
  const NormalProblem shape = shape_of(problem);
  std::uint64_t generation = generation_;
  if (auto choice = remembered(shape)) return *choice;
  const Planner planner = this->planner(problem);
  Choice choice = look_up(planner, shape);
  if (measures(problem, choice)) {
    if (!may_measure || measures_here()) {
      if (settled) *settled = false;
      choice.why += may_measure ? "; not measured from within a measurement" : "; not measured during stream capture";
      return choice;
    }
    const Measuring measuring(*this, problem);
    generation = generation_;
    if (auto meanwhile = remembered(shape)) return *meanwhile;
    choice = look_up(planner, shape);
    const double left = options_.total_budget_seconds - spent_seconds_;
    if (!measures(problem, choice)) {
      // Another thread or process has measured it while this one waited.
    } else if (left <= 0) {
      choice.why += "; not measured: the Context's tuning budget is spent";
    } else if (const auto result = measure(problem, {.budget_seconds = std::min(left, options_.budget_seconds)})) {
      spent_seconds_ += result->seconds;
      choice = measured_choice(planner, shape, *result);
    } else {
      choice.why += "; not measured: nothing could be run";
    }
  }
  remember(shape, choice, generation);
  return choice;
}

Choice Chooser::measured_choice(const Planner& planner, const NormalProblem& shape, const TuneResult& result) {
  // What was measured may be a bucket, another problem, and kernels at hand have a rule of their own; the look-up says
  // what serves instead.
  if (is_bounded() || !planner.why_not(result.config).empty()) return look_up(planner, shape);
  const NormalProblem tuned = tuned_shape(shape, options_.bucket_m);
  Choice choice{.config = result.config,
                .source = PlanSource::measured,
                .why = why_chosen(result) + as_for(tuned, shape),
                .predicted_us = planner.predict_us(result.config),
                .tuned = true};
  if (takes_as_long(tuned, shape)) {
    choice.measured_us = result.median_us;
    choice.spread = result.spread;
    choice.runners_up = runners_up_of(result);
  }
  return choice;
}

Chooser::Tuned Chooser::tune(const NormalProblem& problem, const std::function<void(int, int)>& progress) {
  if (measures_here())
    throw Error(ErrorCode::invalid_option, "a progress callback tunes; tune when the call that measures has returned");
  const Measuring measuring(*this, problem, progress);
  std::exception_ptr why;
  // Who asks for it wants the best, and has the time.
  auto result = measure(problem, {.budget_seconds = options_.budget_seconds,
                                  .waits_for_kernels = !device_.emulated,
                                  .progress = progress,
                                  .why_nothing = &why});
  if (why) std::rethrow_exception(why);
  if (!result) {
    throw Error(ErrorCode::launch_failed,
                "no candidate computes what the reference does; JITGEMM_LOG=info says more, and please report it");
  }
  forget();
  return {measured_choice(planner(problem), shape_of(problem), *result), *result};
}

std::optional<Choice> Chooser::remembered(const NormalProblem& shape) {
  const std::shared_lock lock(settled_mutex_);
  const auto found = settled_.find(shape);
  if (found == settled_.end()) return std::nullopt;
  return found->second;
}

void Chooser::remember(const NormalProblem& shape, const Choice& choice, std::uint64_t generation) {
  const std::unique_lock lock(settled_mutex_);
  if (generation != generation_) return;
  if (settled_.size() >= most_settled) settled_.clear();
  settled_.insert_or_assign(shape, choice);
}

void Chooser::forget() {
  const std::unique_lock lock(settled_mutex_);
  ++generation_;
  settled_.clear();
}

Choice Chooser::look_up(const Planner& planner, const NormalProblem& shape) {
  return bounded(planner, shape, free_choice(planner, shape));
}

Choice Chooser::free_choice(const Planner& planner, const NormalProblem& shape) {
  if (options_.tuning == Tuning::off) return by_model(planner);
  const NormalProblem tuned = tuned_shape(shape, options_.bucket_m);
  TuningLookup found = db_.find(tuned, device_, options_.constraints);
  if (found.match != Match::exact && has_vector_scales(tuned)) {
    // Better than another shape's: only the epilogue's few microseconds are others.
    NormalProblem single = tuned;
    single.a.scaling = single.b.scaling = Scaling::value;
    if (TuningLookup other = db_.find(single, device_, options_.constraints); other.match == Match::exact) {
      found = std::move(other);
      found.match = Match::nearest;
      found.measured_us = found.spread = 0;
      found.runners_up.clear();
      found.why += ", with single scales";
    }
  }
  if (found.match == Match::none) return by_model(planner);

  // The look-up has checked this for the bucket, which is another problem.
  if (const std::string broken = planner.why_not(found.config); !broken.empty()) {
    Choice choice = by_model(planner);
    choice.source = PlanSource::fallback;
    choice.why += "; the configuration stored (" + found.why + ") is not legal here: " + broken;
    return choice;
  }
  std::string why;
  if (const auto best = judge_nearest(found, planner, &why)) {
    return {best->config, PlanSource::model, why, best->predicted_us};
  }
  found.why += as_for(tuned, shape);
  return {.config = found.config,
          .source = found.match == Match::exact ? PlanSource::exact : PlanSource::nearest,
          .why = found.why,
          .predicted_us = planner.predict_us(found.config),
          .measured_us = takes_as_long(tuned, shape) ? found.measured_us : 0,
          .spread = found.spread,
          .expected_regret = found.expected_regret,
          .runners_up = found.runners_up,
          .tuned = found.match == Match::exact};
}

Choice Chooser::choose_within(const NormalProblem& problem, std::size_t workspace_bytes) {
  Constraints constraints = options_.constraints;
  constraints.workspace_bytes = std::min(constraints.workspace_bytes, workspace_bytes);
  const Planner planner(problem, part_, constraints);
  const auto fitting = first_of(planner);
  if (!fitting) {
    const std::size_t needed = launch_shape(problem, choose(problem, false).config).workspace_bytes();
    throw Error(ErrorCode::workspace_too_small, "the workspace has " + std::to_string(workspace_bytes) +
                                                    " bytes, with which no kernel does here; pass " +
                                                    std::to_string(needed) + ", or none");
  }
  Choice choice = bounded(planner, shape_of(problem), *fitting);
  choice.why += " of those that fit a workspace of " + std::to_string(workspace_bytes) + " bytes";
  logger().info("{}: {}, {}", to_string(problem), to_string(choice.config), choice.why);
  return choice;
}

std::optional<Choice> Chooser::first_of(const Planner& planner) {
  const std::vector<RankedConfig> ranked = planner.ranked(1);
  if (ranked.empty()) return std::nullopt;
  return Choice{ranked[0].config, PlanSource::model, "best predicted by the cost model", ranked[0].predicted_us, 0, 0};
}

Choice Chooser::by_model(const Planner& planner) const {
  if (const auto first = first_of(planner)) return *first;
  if (const std::size_t smem = device_.smem_per_block; smem < 48 * 1024) {
    throw Error(ErrorCode::no_device, "the device has " + std::to_string(smem) +
                                          " bytes of shared memory a block, and no kernel does with them; use another");
  }
  if (constrain(options_.constraints) && !rank(planner.problem(), device_, 1).empty()) {
    throw Error(ErrorCode::invalid_option, "no configuration keeps to the constraints (" +
                                               to_string(options_.constraints) + "); allow more SMs or workspace");
  }
  const int size = int(size_of(planner.problem().a.type));
  KernelConfig refused{.block_m = 32, .block_n = 32, .block_k = 128 / size, .stages = 2, .warps = 2};
  // What the first family alone computes is refused where it is for a reason of its own.
  if (has_own_scales_d(planner.problem()) && device_.has_wgmma())
    refused = plan_families.front()->typical(planner.problem(), 0);
  throw Error(ErrorCode::invalid_problem, "no configuration is legal on this device (" + planner.why_not(refused) +
                                              "); use other types, sizes, factors or alignments");
}

std::optional<TuneResult> Chooser::measure(const NormalProblem& problem, TuneOptions options) {
  const NormalProblem tuned = tuned_shape(shape_of(problem), options_.bucket_m);
  options.progress = [&, of_call = std::move(options.progress)](int done, int total) {
    report_progress(problem, of_call, done, total);
  };
  if (options.waits_for_kernels)
    options.candidates = candidates_for(tuned, device_, options_.constraints, options.budget_seconds);
  const auto ranked = to_measure(planner(tuned), std::size_t(options.candidates));
  auto result = jitgemm::tune(backend_, store_, tuned, ranked, options);
  if (!result) return std::nullopt;
  ++tuned_;
  TuningRecord record;
  record.problem = tuned;
  record.config = result->config;
  record.median_us = result->median_us;
  record.spread = result->spread;
  // What had no time for all of them is none's answer: it is tuned again. On the emulator times mean nothing anyway.
  if (result->complete || device_.emulated) record.candidates = candidate_set(ranked);
  record.runners_up = runners_up_of(*result);
  (is_bounded() ? at_hand_db_ : db_).add(from_here(record));
  logger().info("tuned {} in {:.2f} s: {}, {:.1f} us", to_string(tuned), result->seconds, to_string(result->config),
                result->median_us);
  return result;
}

TuningRecord Chooser::from_here(TuningRecord record) const {
  record.constraints = options_.constraints;
  record.device_name = device_.name;
  record.compute_capability = device_.compute_capability;
  record.sm_count = device_.sm_count;
  record.emulated = device_.emulated;
  record.library_version = JITGEMM_VERSION;
  return record;
}

TuningLookup Chooser::find(const NormalProblem& shape, const AcrossRanks& across) {
  if (options_.tuning == Tuning::off || is_bounded()) return {};
  return db_.find(shape, across, device_, options_.constraints);
}

double Chooser::seconds_to_measure() {
  if (options_.tuning != Tuning::on || is_bounded() || measures_here()) return 0;
  return std::clamp(options_.total_budget_seconds - spent_seconds_, 0.0, options_.budget_seconds);
}

void Chooser::keep(const TuningRecord& record, double seconds) {
  spent_seconds_ += seconds;
  ++tuned_;
  db_.add(from_here(record));
}

bool Chooser::measures(const NormalProblem& problem, const Choice& choice) const {
  if (options_.tuning != Tuning::on || !reads_ab(problem) || choice.tuned || has_epilogue_function(problem))
    return false;
  if (!is_bounded()) return true;
  // With D's own scales it would be other kernels that are measured, which may not be at hand.
  return !has_own_scales_d(problem) && at_hand_.has(problem, choice.config) && at_hand_.has_check(problem);
}

}  // namespace jitgemm
