#include "tune/autotuner.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>

#include "core/groups.hpp"
#include "core/problem.hpp"
#include "jitgemm/error.hpp"
#include "kernels/launch_shape.hpp"
#include "tune/compile_ahead.hpp"
#include "tune/contest.hpp"
#include "tune/measurement.hpp"
#include "tune/output_check.hpp"
#include "tune/sampler.hpp"
#include "util/hash.hpp"
#include "util/log.hpp"

namespace jitgemm {
namespace {

constexpr LeastLead least_lead{.usually = 0.005};
constexpr double no_limit_seconds = 1e8;
// Whether a candidate is out is asked after each round, so it takes more than the one comparison at the end: five
// standard errors for its two, and rounds enough for the quartiles to mean something.
constexpr EarlyEnd early_end{.times_noise = 2.5, .rounds = 8};

// What takes so long draws the power that slows the card in steps, the last of which comes late.
constexpr double power_limited_us = 30, power_limited_warm_up_ms = 300;
// A load that has not slowed down by then, by this factor, does so little later.
constexpr double first_step_seconds = 0.04, slowed_down = 1.01;

constexpr std::chrono::milliseconds progress_interval{50};  // while nothing is there to be measured

constexpr std::array stages{Stage{3, HUGE_VAL}, Stage{4, 1.25}, Stage{5, 1.06}, Stage{20, 1.03}};
constexpr double longest_short_sample_us = 2000;  // of calls that take less
constexpr std::array emulator_stages{Stage{2, HUGE_VAL}, Stage{1, 1.5}};

class Deadline {
 public:
  explicit Deadline(double seconds)
      : end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double>(std::min(seconds, no_limit_seconds)))) {}
  bool over() const { return Clock::now() >= end_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_;
};

struct Candidate {
  TunedCandidate report;
  Runnable runnable;
  std::exception_ptr failure;  // that it was skipped for

  bool runs() const { return !runnable.kernels.empty(); }
  void skip(const std::string& why) {
    report.skipped = why;
    runnable = {};
    logger().info("tuning skipped {}: {}", to_string(report.config), why);
  }
};

class Tuner {
 public:
  Tuner(Backend& backend, KernelStore& store, const NormalProblem& problem, const std::vector<RankedConfig>& ranked,
        const TuneOptions& options)
      : backend_(backend), store_(store), problem_(problem), options_(options), relaxed_(backend.relax_capture()) {
    for (const RankedConfig& choice : ranked) {
      if (int(candidates_.size()) >= std::max(1, options.candidates)) break;
      Candidate candidate;
      candidate.report.config = choice.config;
      candidate.report.predicted_us = choice.predicted_us;
      candidate.runnable.config = choice.config;
      candidate.runnable.shape = launch_shape_on(backend.device(), problem, choice.config);
      candidates_.push_back(std::move(candidate));
    }
  }

  std::optional<TuneResult> run() {
    const auto begin = std::chrono::steady_clock::now();
    std::size_t workspace_bytes = 0;
    int counters = 0;
    for (const Candidate& candidate : candidates_) {
      workspace_bytes = std::max(workspace_bytes, candidate.runnable.shape.workspace_bytes());
      counters = std::max(counters, candidate.runnable.shape.counters);
    }
    sampler_.emplace(backend_, problem_, workspace_bytes, counters);
    admit_all();
    measure_all();
    const std::optional<Contest::Result> won = contest_ ? contest_->result() : std::nullopt;
    if (!won) {
      if (options_.why_nothing) *options_.why_nothing = candidates_.front().failure;
      return std::nullopt;
    }

    TuneResult result;
    result.config = candidates_[won->winner].report.config;
    result.complete = complete_;
    result.kept_first = won->kept_first;
    result.median_us = won->its.median;
    result.spread = won->its.spread;
    result.samples = samples_;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      result.candidates.push_back(candidates_[i].report);
      if (!candidates_[i].runs()) continue;
      result.candidates.back().measured_us = won->its.median * contest_->over(i, won->winner).median;
      result.candidates.back().spread = summarise(contest_->times(i).us()).spread;
    }
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return result;
  }

 private:
  /// Compiles, runs and checks each candidate; meanwhile, first of all, what checks them. The clock starts when the
  /// first one is compiled.
  void admit_all() {
    // Threads read what does not change while they run.
    std::vector<KernelConfig> configs;
    for (const Candidate& candidate : candidates_) configs.push_back(candidate.report.config);
    kernels_.emplace(backend_, configs.size(), [this, configs](std::size_t i) {
      return get_kernels(store_, problem_, configs[i], backend_.device());
    });
    check_.emplace(backend_, store_, as_batch(problem_), sampler_->operands_as_batch(), sampler_->stream());
    std::vector<std::size_t> pending(candidates_.size());
    std::iota(pending.begin(), pending.end(), 0);
    while (!pending.empty() && !(admission_deadline_ && admission_deadline_->over())) {
      const auto next = next_compiled(pending);
      if (next == pending.end()) {
        if (std::chrono::steady_clock::now() - reported_ >= progress_interval) report_progress();
        continue;
      }
      Candidate& candidate = candidates_[*next];
      guarded(candidate, [&] {
        candidate.runnable.kernels = (*kernels_)[*next].get();
        admit(candidate);
      });
      if (candidate.runs() && !admission_deadline_)
        admission_deadline_.emplace(options_.waits_for_kernels ? no_limit_seconds
                                                               : admission_share * options_.budget_seconds);
      pending.erase(next);
      done_ = int(candidates_.size() - pending.size());
      report_progress();
    }
    for (std::size_t i : pending) {
      complete_ = false;
      candidates_[i].skip("not compiled within " + std::to_string(int(100 * admission_share)) +
                          " % of the tuning budget");
    }
    done_ = int(candidates_.size());
    kernels_->stop();
  }

  /// The first of them whose kernel is there, or deferred to its get(), waiting a little for one. While none is
  /// admitted: their first.
  std::vector<std::size_t>::iterator next_compiled(std::vector<std::size_t>& pending) {
    if (!admission_deadline_) {
      while ((*kernels_)[pending.front()].wait_for(progress_interval) == std::future_status::timeout) report_progress();
      return pending.begin();
    }
    (*kernels_)[pending.front()].wait_for(std::chrono::milliseconds(1));
    return std::find_if(pending.begin(), pending.end(), [this](std::size_t i) {
      return (*kernels_)[i].wait_for(std::chrono::seconds(0)) != std::future_status::timeout;
    });
  }

  /// Whatever is wrong with a candidate concerns that candidate only.
  template <typename Action>
  void guarded(Candidate& candidate, const Action& action) {
    try {
      action();
    } catch (const std::exception& error) {
      candidate.failure = std::current_exception();
      candidate.skip(error.what());
    }
  }

  void admit(Candidate& candidate) {
    check_->poison();
    sampler_->run(candidate.runnable);
    const OutputCheck::Verdict verdict = check_->judge();
    if (!verdict.why_wrong.empty()) return candidate.skip("computes a wrong result: " + verdict.why_wrong);
    if (verdict.accepted_were_wrong) {
      for (Candidate& earlier : candidates_) {
        if (&earlier != &candidate && earlier.runs())
          earlier.skip("computes a wrong result: a later candidate's is right");
      }
    }
    sampler_->prepare(candidate.runnable, candidate.report.predicted_us);
  }

  void measure_rounds() {
    for (auto round = contest_->next_round(); !round.empty(); round = contest_->next_round()) {
      for (const std::size_t i : round) {
        Candidate& candidate = candidates_[i];
        const bool enough = contest_->times(i).size() > 0 || &candidate != first();
        if (enough && deadline_->over()) return;
        guarded(candidate, [&] {
          contest_->add(i, contest_->round(), sampler_->sample(candidate.runnable));
          ++samples_;
        });
        if (!candidate.runs()) contest_->drop(i);
        report_progress();
      }
    }
  }

  /// Keeps the device busy until it has the clocks of a device under load. By the device's own time, so that a test's
  /// device, which has no other, sees the same samples on any host.
  void warm_up() {
    if (backend_.device().emulated) return;
    const Runnable& load = first()->runnable;
    const double cool_us = sampler_->sample(load);
    const double enough_ms = cool_us > power_limited_us ? power_limited_warm_up_ms : warm_up_ms;
    const double seconds = std::min(1e-3 * enough_ms, warm_up_share * options_.budget_seconds);
    double us = cool_us;
    for (double busy = 0; busy < seconds && !deadline_->over(); busy += 1e-6 * us * load.launches) {
      if (busy >= first_step_seconds && us < slowed_down * cool_us) return;
      us = sampler_->sample(load);
    }
  }

  void measure_all() {
    if (!first()) return;
    deadline_.emplace(measuring_share * options_.budget_seconds);
    guarded(*first(), [this] { warm_up(); });
    std::vector<std::size_t> running;
    for (std::size_t i = 0; i < candidates_.size(); ++i)
      if (candidates_[i].runs()) running.push_back(i);
    const std::span<const Stage> all = backend_.device().emulated ? std::span<const Stage>(emulator_stages) : stages;
    contest_.emplace(running, all, least_lead, Heir::next, early_end);
    measure_rounds();
    for (const std::size_t i : running) {
      if (!candidates_[i].runs() || contest_->times(i).size() > 0) continue;
      complete_ = false;
      candidates_[i].skip("not measured within the tuning budget");
    }
  }

  /// The model's first choice among those that run.
  Candidate* first() {
    const auto found =
        std::find_if(candidates_.begin(), candidates_.end(), [](const Candidate& c) { return c.runs(); });
    return found == candidates_.end() ? nullptr : &*found;
  }

  /// Never within guarded(): what it throws concerns no candidate.
  void report_progress() {
    reported_ = std::chrono::steady_clock::now();
    options_.progress(done_, int(candidates_.size()));
  }

  Backend& backend_;
  KernelStore& store_;
  const NormalProblem& problem_;
  const TuneOptions& options_;
  std::unique_ptr<Backend::RelaxedCapture> relaxed_;
  std::vector<Candidate> candidates_;
  bool complete_ = true;
  int done_ = 0;  // of the candidates, with compiling and checking
  std::chrono::steady_clock::time_point reported_;
  std::optional<Contest> contest_;
  int samples_ = 0;
  std::optional<Sampler> sampler_;
  std::optional<OutputCheck> check_;
  std::optional<CompileAhead> kernels_;
  std::optional<Deadline> admission_deadline_, deadline_;
};

}  // namespace

int candidates_for(const NormalProblem& problem, const RatedDevice& device, const Constraints& constraints,
                   double budget_seconds) {
  if (device.emulated) return tuned_candidates;
  const std::vector<RankedConfig> first = rank(problem, device, 1, constraints);
  const double call_us = first.empty() ? 0 : first.front().predicted_us;
  const double seconds = measuring_share * budget_seconds / 2;
  const double sample_seconds = 1e-6 * std::max(longest_short_sample_us, call_us);
  const double affordable = seconds / (stages.front().rounds * sample_seconds);
  return int(std::clamp(affordable, double(tuned_candidates), double(most_candidates)));
}

std::string why_chosen(const TuneResult& result) { return why_chosen(result.kept_first, "those measured now"); }

std::vector<MeasuredConfig> runners_up_of(const TuneResult& result) {
  std::vector<MeasuredConfig> measured;
  for (const TunedCandidate& candidate : result.candidates) {
    if (candidate.measured_us > 0 && !(candidate.config == result.config))
      measured.push_back({candidate.config, candidate.measured_us});
  }
  std::ranges::sort(measured, {}, &MeasuredConfig::median_us);
  measured.resize(std::min<std::size_t>(measured.size(), 3));
  return measured;
}

std::string candidate_set(const std::vector<RankedConfig>& ranked) {
  std::set<std::string> lines;
  for (const RankedConfig& choice : ranked) lines.insert(to_string(choice.config) + "\n");
  std::string text;
  for (const std::string& line : lines) text += line;
  return digest_of(text).substr(0, 16);
}

std::optional<TuneResult> tune(Backend& backend, KernelStore& store, const NormalProblem& problem,
                               const std::vector<RankedConfig>& ranked, const TuneOptions& options) {
  if (is_empty(problem) || ranked.empty()) return std::nullopt;
  TuneOptions own = options;
  bool stopped = false;
  own.progress = [&](int done, int total) {
    if (!options.progress) return;
    stopped = true;
    options.progress(done, total);
    stopped = false;
  };
  try {
    return Tuner(backend, store, problem, ranked, own).run();
  } catch (const std::exception& error) {
    if (stopped) throw;
    if (options.why_nothing)
      *options.why_nothing = std::current_exception();
    else
      logger().warn("tuning of {} given up: {}; using the model's choice", to_string(problem), error.what());
    return std::nullopt;
  }
}

}  // namespace jitgemm
