#include "tune/autotuner.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>

#include "core/launch_shape.hpp"
#include "core/operand_matrix.hpp"
#include "core/packing.hpp"
#include "core/problem.hpp"
#include "jit/launcher.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "tune/measurement.hpp"
#include "tune/output_check.hpp"
#include "tune/scratch.hpp"
#include "util/log.hpp"

namespace jitgemm {
namespace {

// Of one batch of launches between two events. Kernels that fill the device are timed for as long as it takes to meet the power
// limit that they will live under.
constexpr double sample_us = 400, long_sample_us = 2000, long_kernel_us = 60;
constexpr int most_launches = 32;     // of a batch
constexpr double host_launch_us = 6;  // generous: 3 measured
constexpr double hopeless = 1.5;      // times the best, after the first rounds
constexpr double near_tie = 1.05;
constexpr double least_noise = 0.01;
constexpr double admission_share = 0.6;  // of the budget, for compiling and checking; then measure what there is

/// Rounds over all candidates, then over the promising ones, then over the near-ties.
struct Rounds {
  int first, next, ties;
};
constexpr Rounds device_rounds{3, 9, 16}, emulator_rounds{2, 1, 1};

class Deadline {
 public:
  explicit Deadline(double seconds)
      : end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}
  bool over() const { return Clock::now() >= end_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_;
};

/// Gets kernels, in order, in threads. Destruction waits for the compiles under way.
class CompileAhead {
 public:
  CompileAhead(Backend& backend, std::size_t count, std::function<CallKernels(std::size_t)> get)
      : backend_(backend), get_(std::move(get)), promises_(count) {
    for (auto& promise : promises_) futures_.push_back(promise.get_future());
    const std::size_t threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 2, 8);
    for (std::size_t i = 0; i < std::min(threads, count); ++i) threads_.emplace_back([this] { work(); });
  }
  ~CompileAhead() { stop(); }

  /// Starts no other compile.
  void stop() { stop_ = true; }
  std::future<CallKernels>& operator[](std::size_t i) { return futures_[i]; }

 private:
  void work() {
    std::unique_ptr<Backend::RelaxedCapture> relaxed;
    for (std::size_t i; !stop_ && (i = next_++) < promises_.size();) {
      try {
        if (!relaxed) relaxed = backend_.relax_capture();
        promises_[i].set_value(get_(i));
      } catch (...) {
        promises_[i].set_exception(std::current_exception());
      }
    }
  }

  Backend& backend_;
  std::function<CallKernels(std::size_t)> get_;
  std::vector<std::promise<CallKernels>> promises_;
  std::vector<std::future<CallKernels>> futures_;
  std::atomic<bool> stop_ = false;
  std::atomic<std::size_t> next_ = 0;
  std::vector<std::jthread> threads_;  // last: joined first
};

/// The launches of a call, ready to be repeated.
struct PreparedCall {
  std::vector<std::pair<LaunchShape, CallArguments>> launches;
};

/// A launch of a GEMM kernel, ready to be repeated.
struct Prepared {
  LaunchShape shape;
  device::Arguments arguments;
};

struct Candidate {
  TunedCandidate report;
  LaunchShape shape;
  CallKernels kernels;
  int launches = 1;  // of a batch
  std::optional<Prepared> lead;
  int lead_launches = 0;
  std::vector<double> samples;
  std::exception_ptr failure;  // that it was skipped for

  bool runs() const { return kernels.gemm != nullptr; }
  double median() const { return summarise(samples).median; }
  void skip(const std::string& why) {
    report.skipped = why;
    kernels = {};
    logger().info("tuning skipped {}: {}", to_string(report.config), why);
  }
};

class Tuner {
 public:
  Tuner(Backend& backend, KernelStore& store, const Problem& problem, const std::vector<RankedConfig>& ranked,
        const TuneOptions& options)
      : backend_(backend), store_(store), problem_(problem), options_(options), relaxed_(backend.relax_capture()) {
    for (const RankedConfig& choice : ranked) {
      if (int(candidates_.size()) >= std::max(1, options.candidates)) break;
      Candidate candidate;
      candidate.report.config = choice.config;
      candidate.report.predicted_us = choice.predicted_us;
      candidate.shape = launch_shape(problem, choice.config);
      candidates_.push_back(std::move(candidate));
    }
  }

  std::optional<TuneResult> run() {
    const auto begin = std::chrono::steady_clock::now();
    std::size_t workspace_bytes = 0;
    int counters = 0;
    for (const Candidate& candidate : candidates_) {
      workspace_bytes = std::max(workspace_bytes, candidate.shape.workspace_bytes());
      counters = std::max(counters, candidate.shape.counters);
    }
    scratch_.emplace(backend_, problem_, workspace_bytes, counters);
    timer_.emplace(backend_);
    check_.emplace(backend_, problem_, scratch_->operands(0));
    admit_all();
    measure_all();
    const Candidate* winner = choose();
    if (!winner) {
      if (options_.why_nothing) *options_.why_nothing = candidates_.front().failure;
      return std::nullopt;
    }

    const Statistics statistics = summarise(winner->samples);
    TuneResult result{winner->report.config, statistics.median, statistics.spread, {}, 0};
    for (const Candidate& candidate : candidates_) {
      result.candidates.push_back(candidate.report);
      if (!candidate.runs()) continue;
      const Statistics own = summarise(candidate.samples);
      result.candidates.back().measured_us = own.median;
      result.candidates.back().spread = own.spread;
    }
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return result;
  }

 private:
  /// Compiles, runs and checks each candidate. The clock starts when the first one is compiled.
  void admit_all() {
    // Threads read what does not change while they run.
    std::vector<KernelConfig> configs;
    for (const Candidate& candidate : candidates_) configs.push_back(candidate.report.config);
    kernels_.emplace(backend_, configs.size(), [this, configs](std::size_t i) {
      return get_kernels(store_, problem_, configs[i], launch_shape(problem_, configs[i]), backend_.device());
    });
    std::vector<std::size_t> pending(candidates_.size());
    std::iota(pending.begin(), pending.end(), 0);
    while (!pending.empty() && !(admission_deadline_ && admission_deadline_->over())) {
      const auto next = next_compiled(pending);
      if (next == pending.end()) continue;
      Candidate& candidate = candidates_[*next];
      guarded(candidate, [&] {
        candidate.kernels = (*kernels_)[*next].get();
        admit(candidate);
      });
      if (candidate.runs() && !admission_deadline_) {
        admission_deadline_.emplace(admission_share * options_.budget_seconds);
        deadline_.emplace(options_.budget_seconds);
      }
      pending.erase(next);
      report_progress(int(candidates_.size() - pending.size()));
    }
    for (std::size_t i : pending) {
      candidates_[i].skip("not compiled within " + std::to_string(int(100 * admission_share)) +
                          " % of the tuning budget");
    }
    kernels_->stop();
  }

  /// The first of them whose kernel is there, waiting a little for one. While none is admitted: their first.
  std::vector<std::size_t>::iterator next_compiled(std::vector<std::size_t>& pending) {
    if (!admission_deadline_) return (*kernels_)[pending.front()].wait(), pending.begin();
    (*kernels_)[pending.front()].wait_for(std::chrono::milliseconds(1));
    return std::find_if(pending.begin(), pending.end(), [this](std::size_t i) {
      return (*kernels_)[i].wait_for(std::chrono::seconds(0)) == std::future_status::ready;
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
    scratch_->zero_counters();  // a candidate that failed may have left some
    check_->poison();
    launch(candidate, prepare(candidate, 0));
    backend_.synchronize(timer_->stream());
    const OutputCheck::Verdict verdict = check_->judge();
    if (!verdict.why_wrong.empty()) return candidate.skip("computes a wrong result: " + verdict.why_wrong);
    if (verdict.accepted_were_wrong) {
      for (Candidate& earlier : candidates_) {
        if (&earlier != &candidate && earlier.runs())
          earlier.skip("computes a wrong result: a later candidate's is right");
      }
    }
    if (backend_.device().emulated) return;
    sample(candidate);  // the first launches of a kernel are slower
    const double once_us = sample(candidate);
    candidate.launches =
        std::clamp(int((once_us > long_kernel_us ? long_sample_us : sample_us) / std::max(once_us, 0.1)), 1, most_launches);
    if (once_us < 2 * host_us(candidate)) prepare_lead(candidate);
  }

  /// To enqueue one call.
  static double host_us(const Candidate& candidate) { return (candidate.kernels.packing ? 2 : 1) * host_launch_us; }

  /// A call shorter than its launch is timed behind a longer piece of work, or the host would be timed: its GEMM kernel with
  /// a longer k, and operands that are taken for packed ones.
  void prepare_lead(Candidate& candidate) {
    if (!reads_ab(problem_)) return;
    KernelConfig config = candidate.report.config;
    Problem longer = packed_problem(problem_, config);
    config.pack_a = config.pack_b = false;
    const bool a_rows = longer.layout_a == Layout::row_major, b_rows = longer.layout_b == Layout::row_major;
    const std::int64_t bytes_per_k = ((a_rows ? longer.m : longer.lda) + (b_rows ? longer.ldb : longer.n)) *
                                     std::int64_t(size_of(longer.a)) * longer.batch;
    const std::int64_t affordable = (std::int64_t(scratch_->input_bytes()) - 512) / bytes_per_k / 64 * 64;
    longer.k = std::min<std::int64_t>(affordable, 1 << 20);
    if (longer.k <= 2 * problem_.k) return;
    if (a_rows) longer.lda = longer.k;
    if (!b_rows) longer.ldb = longer.k;
    if (longer.stride_a != 0) longer.stride_a = matrix_a(longer).vectors * longer.lda;
    if (longer.stride_b != 0) longer.stride_b = matrix_b(longer).vectors * longer.ldb;

    Prepared lead{launch_shape(longer, config), {}};
    if (lead.shape.partial_bytes > scratch_->workspace_bytes() || lead.shape.counters > scratch_->counters()) return;
    Operands operands = scratch_->operands(0);
    const auto a_bytes = std::size_t(matrix_a(longer).batch_bytes());
    operands.a = scratch_->inputs();
    operands.b = static_cast<const char*>(scratch_->inputs()) + (a_bytes + 255) / 256 * 256;
    lead.arguments = make_arguments(longer, config, lead.shape, operands, scratch_->workspace(), encode_);
    const auto run = [&](int) { launch_lead(candidate, lead); };
    const double lead_us = timer_->time_us(1, run, [&] { run(0); });
    candidate.lead_launches = std::clamp(int(std::ceil(candidate.launches * host_us(candidate) / lead_us)), 1, 16);
    candidate.lead = lead;
  }

  /// Interleaved, in alternating order, so that a drift of the clocks is everyone's.
  void rounds(int count, const std::vector<Candidate*>& some) {
    for (int round = 0; round < count; ++round) {
      for (std::size_t i = 0; i < some.size(); ++i) {
        Candidate& candidate = *some[round % 2 ? some.size() - 1 - i : i];
        const bool enough = !candidate.samples.empty() || &candidate != first();
        if (enough && deadline_->over()) return;
        if (candidate.runs()) guarded(candidate, [&] { candidate.samples.push_back(sample(candidate)); });
      }
    }
  }

  void measure_all() {
    const Rounds count = backend_.device().emulated ? emulator_rounds : device_rounds;
    if (!first()) return;
    rounds(count.first, within(HUGE_VAL));
    rounds(count.next, within(hopeless));
    if (const std::vector<Candidate*> ties = within(near_tie); ties.size() > 1) rounds(count.ties, ties);
    for (Candidate& candidate : candidates_) {
      if (candidate.runs() && candidate.samples.empty()) candidate.skip("not measured within the tuning budget");
    }
    report_progress(int(candidates_.size()));
  }

  /// The model's first choice among those that run.
  Candidate* first() {
    const auto found =
        std::find_if(candidates_.begin(), candidates_.end(), [](const Candidate& c) { return c.runs(); });
    return found == candidates_.end() ? nullptr : &*found;
  }

  Candidate* best() {
    Candidate* best = nullptr;
    for (Candidate& candidate : candidates_) {
      if (!candidate.runs() || candidate.samples.empty()) continue;
      if (!best || candidate.median() < best->median()) best = &candidate;
    }
    return best;
  }

  /// Those at most `factor` slower than the best, and the model's first choice.
  std::vector<Candidate*> within(double factor) {
    std::vector<Candidate*> some;
    const Candidate* const fastest = best();
    const double limit = fastest ? factor * fastest->median() : HUGE_VAL;
    for (Candidate& candidate : candidates_) {
      if (candidate.runs() && (&candidate == first() || candidate.median() <= limit)) some.push_back(&candidate);
    }
    return some;
  }

  /// The fastest, or the model's first choice if that is not beaten by more than the noise.
  Candidate* choose() {
    Candidate* const fastest = best();
    Candidate* const expected = first();
    if (!fastest || fastest == expected || expected->samples.empty()) return fastest;
    const Statistics x = summarise(fastest->samples), y = summarise(expected->samples);
    const double noise = std::max(least_noise, std::hypot(x.noise, y.noise));
    return x.median < y.median * (1 - noise) ? fastest : expected;
  }

  double sample(const Candidate& candidate) {
    std::vector<PreparedCall> batch;  // made before the clock starts
    for (int i = 0; i < candidate.launches; ++i) batch.push_back(prepare(candidate, next_set()));
    const auto lead = [&] {
      if (backend_.device().emulated) return;
      for (int i = 0; i < candidate.lead_launches; ++i) launch_lead(candidate, *candidate.lead);
      if (!candidate.lead) launch(candidate, batch.back());
    };
    return timer_->time_us(
        candidate.launches, [&](int i) { launch(candidate, batch[std::size_t(i)]); }, lead);
  }

  PreparedCall prepare(const Candidate& candidate, int set) {
    PreparedCall call;
    for_each_launch(problem_, candidate.report.config, candidate.shape, scratch_->operands(set), scratch_->workspace(), encode_,
                    [&](const LaunchShape& shape, const CallArguments& arguments) {
                      call.launches.emplace_back(shape, arguments);
                    });
    return call;
  }

  void launch(const Candidate& candidate, const PreparedCall& call) {
    for (const auto& [shape, arguments] : call.launches) {
      launch_kernels(backend_, candidate.kernels.packing.get(), *candidate.kernels.gemm, shape, arguments, timer_->stream());
    }
  }

  void launch_lead(const Candidate& candidate, const Prepared& lead) {
    backend_.launch(*candidate.kernels.gemm->loaded, lead.shape, lead.arguments, timer_->stream());
  }

  int next_set() { return set_ = (set_ + 1) % scratch_->sets(); }

  void report_progress(int done) {
    if (options_.progress) options_.progress(done, int(candidates_.size()));
  }

  Backend& backend_;
  KernelStore& store_;
  const Problem& problem_;
  const TuneOptions& options_;
  std::unique_ptr<Backend::RelaxedCapture> relaxed_;
  std::function<device::TensorMap(const TensorMapSpec&)> encode_ = [this](const TensorMapSpec& spec) {
    return backend_.encode_tensor_map(spec);
  };
  std::vector<Candidate> candidates_;
  std::optional<Scratch> scratch_;
  std::optional<LaunchTimer> timer_;
  std::optional<OutputCheck> check_;
  std::optional<CompileAhead> kernels_;
  std::optional<Deadline> admission_deadline_, deadline_;
  int set_ = 0;
};

}  // namespace

std::optional<TuneResult> tune(Backend& backend, KernelStore& store, const Problem& problem,
                               const std::vector<RankedConfig>& ranked, const TuneOptions& options) {
  if (is_empty(problem) || ranked.empty()) return std::nullopt;
  try {
    return Tuner(backend, store, problem, ranked, options).run();
  } catch (const std::exception& error) {
    if (options.why_nothing)
      *options.why_nothing = std::current_exception();
    else
      logger().warn("tuning of {} given up: {}; using the model's choice", to_string(problem), error.what());
    return std::nullopt;
  }
}

}  // namespace jitgemm
