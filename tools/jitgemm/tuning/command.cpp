// tune: the fastest of the candidates, measured and remembered.
#include "tuning/command.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

#include "calibrate/calibrate.hpp"
#include "common/options.hpp"
#include "common/progress.hpp"
#include "common/text.hpp"
#include "tuning/plan.hpp"
#include "tuning/workers.hpp"
#include "warm/kernels_ahead.hpp"

namespace jitgemm::cli {
namespace {

struct Options {
  ProblemOptions problem;
  DeviceOptions device;
  std::string shapes, gpus = "1";
  std::optional<double> shape_limit_seconds;
  bool again = false, dry_run = false, calibrate = false, json = false;
};

void print_report(const TuneReport& report) {
  fmt::print("{}\n{:>11} {:>12} {:>7}  config\n", to_string(report.plan.problem), "measured us", "predicted us",
             "spread");
  for (const TunedCandidate& candidate : report.candidates) {
    const bool winner = candidate.config == report.plan.config;
    if (candidate.skipped.empty()) {
      fmt::print("{:>11.2f} {:>12.2f} {:>6.1f}%  {}{}\n", candidate.measured_us, candidate.predicted_us,
                 100 * candidate.spread, to_string(candidate.config), winner ? "  <- chosen" : "");
    } else {
      fmt::print("{:>11} {:>12.2f} {:>7}  {}: {}\n", "skipped", candidate.predicted_us, "", to_string(candidate.config),
                 candidate.skipped);
    }
  }
  fmt::print("{}, in {}\n", report.plan.why, duration_text(report.seconds));
}

void tune_one(const ContextOptions& context_options, const Options& options) {
  Context context(context_options);
  const Problem problem = options.problem.problem();
  context.plan(problem);  // refuses what makes no sense
  check_database(context_options);
  options.device.announce_emulator(context_options);
  Progress progress("tuning");
  const TuneReport report = context.tune(problem, [&](int done, int total) { progress.update(done, total); });
  progress.hide();
  if (options.json)
    print_json(to_json(report));
  else
    print_report(report);
  check_kept({problem}, context_options);
}

void print_cost(const TunePlan& plan, const TuneCost& cost, const ContextOptions& context_options, int devices,
                bool json) {
  const double seconds = cost.compile_seconds + cost.measure_seconds;
  if (json) {
    return print_json({{"device", plan.device.name},
                       {"devices", devices},
                       {"shapes", plan.shapes},
                       {"tuned", plan.tuned},
                       {"to_tune", plan.tasks.size()},
                       {"kernels", cost.kernels},
                       {"kernels_cached", cost.cached},
                       {"compile_seconds", cost.compile_seconds},
                       {"measure_seconds", cost.measure_seconds},
                       {"seconds", seconds}});
  }
  fmt::print("shapes    {}: {} tuned already, {} to tune, on {} at once ({})\n", plan.shapes, plan.tuned,
             plan.tasks.size(), counted(std::uint64_t(devices), plan.device.emulated ? "worker" : "GPU"),
             plan.device.name);
  if (plan.tasks.empty()) return;
  fmt::print("kernels   {}: {} cached, {} to compile, in about {}\n", cost.kernels, cost.cached,
             cost.kernels - cost.cached, duration_text(cost.compile_seconds));
  fmt::print("measuring at most {}, at {} a shape\n", duration_text(cost.measure_seconds),
             duration_text(context_options.tuning_budget_seconds));
  fmt::print("in all    about {}\n", duration_text(seconds));
}

/// Prints what becomes of the tasks, one by one.
class Results {
 public:
  Results(const TunePlan& plan, bool json) : json_(json), total_(int(plan.tasks.size())) {
    for (const TuneTask& task : plan.tasks) expected_seconds_ += task.expected_seconds;
    update();
  }

  void tuned(const TuneTask& task, const nlohmann::ordered_json& report) {
    ++done_;
    finish(task);
    if (json_) {
      reports_.push_back(report);
    } else {
      progress_.hide();
      const auto& plan = report["plan"];
      fmt::print("{:>11.2f} us  {}  {}\n", plan["measured_us"].get<double>(), to_string(task.problem),
                 plan["config"].get<std::string>());
      std::fflush(stdout);
    }
    update();
  }
  void failed(const TuneTask& task, const std::string& why) {
    finish(task);
    say(fmt::format("not tuned: {}: {}", to_string(task.problem), why));
    update();
  }
  void say(const std::string& line) {
    progress_.hide();
    std::fflush(stdout);
    fmt::print(stderr, "jitgemm: {}\n", line);
  }
  /// `part`: of this task, 0 to 1.
  void update(const TuneTask* task = nullptr, double part = 0) {
    const double seconds = finished_seconds_ + (task ? part * task->expected_seconds : 0);
    progress_.update(done_, total_, task ? to_string(task->problem) : "",
                     total_ == 0 ? 0 : seconds / expected_seconds_);
  }

  /// Throws Error if any is left.
  void end() {
    progress_.hide();
    if (json_) print_json(reports_);
    if (done_ == total_) return;
    throw Error(ErrorCode::internal, fmt::format("{} of {} untuned: the same command goes on with what is left",
                                                 counted(std::uint64_t(total_ - done_), "shape"), total_));
  }

 private:
  void finish(const TuneTask& task) { finished_seconds_ += task.expected_seconds; }

  Progress progress_{"tuning"};
  bool json_;
  int total_, done_ = 0;
  double expected_seconds_ = 0, finished_seconds_ = 0;
  nlohmann::ordered_json reports_ = nlohmann::ordered_json::array();
};

void tune_here(const TunePlan& plan, const ContextOptions& context_options, Results& results) {
  constexpr double admission = 0.6;  // the part of a task that its progress is about
  Context context(context_options);
  for (const TuneTask& task : plan.tasks) {
    results.update(&task);
    try {
      results.tuned(task, to_json(context.tune(task.problem, [&](int done, int total) {
                      results.update(&task, admission * done / total);
                    })));
    } catch (const Error& error) {
      results.failed(task, error.what());
    }
  }
}

/// In the order in which they are tuned.
KernelsAhead::Kernels kernels_of(const TunePlan& plan) {
  KernelsAhead::Kernels kernels;
  for (const TuneTask& task : plan.tasks) {
    for (const KernelConfig& config : task.candidates) kernels.emplace_back(task.problem, config);
  }
  return kernels;
}

/// For one shape, after which its worker is taken to hang. The emulator may well take hours.
double shape_limit_seconds(const ContextOptions& context_options, const Options& options) {
  if (options.shape_limit_seconds) return *options.shape_limit_seconds;
  return context_options.device == Device::emulator ? HUGE_VAL : 60 + 10 * context_options.tuning_budget_seconds;
}

void tune_many(const ContextOptions& context_options, const Options& options) {
  std::vector<WorkerDevice> devices = parse_gpus(options.gpus, context_options);
  const TunePlan plan = plan_tuning(problems_of(options.problem, options.shapes), context_options, options.again);
  if (devices.size() > std::max<std::size_t>(plan.tasks.size(), 1))
    devices.resize(std::max<std::size_t>(plan.tasks.size(), 1));
  if (options.dry_run) {
    return print_cost(plan, cost_of(plan, context_options, int(devices.size())), context_options, int(devices.size()),
                      options.json);
  }
  if (!plan.tasks.empty()) check_database(context_options);
  options.device.announce_emulator(context_options);
  Results results(plan, options.json);
  if (plan.tuned > 0 && !options.again) {
    results.say(fmt::format("{} of {} tuned already on {}: skipped; --again measures them anew", plan.tuned,
                            counted(std::uint64_t(plan.shapes), "shape"), plan.device.name));
  }
  const KernelsAhead ahead(context_options, plan.device, kernels_of(plan));
  if (devices.size() == 1 && devices[0].first_visible_here) {
    if (!plan.tasks.empty()) tune_here(plan, context_options, results);
  } else {
    tune_in_workers(devices, context_options, plan.tasks, shape_limit_seconds(context_options, options),
                    {.tuned = [&](const TuneTask& task, const auto& report) { results.tuned(task, report); },
                     .failed = [&](const TuneTask& task, const std::string& why) { results.failed(task, why); },
                     .worker_died = [&](const std::string& line) { results.say(line); },
                     .tick = [&] { results.update(); }});
  }
  results.end();
  std::vector<Problem> tuned;
  for (const TuneTask& task : plan.tasks) tuned.push_back(task.problem);
  check_kept(tuned, context_options);
}

void tune(const Options& options) {
  if (options.problem.has_epilogue())
    throw Error(ErrorCode::invalid_option,
                "an epilogue of your own is not tuned: leave --epilogue out; what is chosen then serves it, too");
  const ContextOptions context_options = options.device.context_options();
  if (context_options.device == Device::compile_only) {
    throw Error(ErrorCode::invalid_option, "nothing can be measured on compile_only: leave --device out");
  }
  if (options.problem.config()) {
    throw Error(ErrorCode::invalid_option,
                "tune measures what the cost model ranks first: leave --config out; `jitgemm run` times one");
  }
  if (options.calibrate)
    calibrate(context_options, options.json);
  else if (options.shapes.empty())
    tune_one(context_options, options);
  else
    tune_many(context_options, options);
}

}  // namespace

void add_tune(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("tune", "Measure candidates for a problem and remember the best");
  options->problem.add_to(*command);
  options->device.add_to(*command);
  options->device.add_budget_to(*command);
  CLI::Option* const shapes =
      command
          ->add_option("--shapes", options->shapes,
                       "A file of `m n k` lines; those tuned already, by this version from the same candidates, are "
                       "skipped, so that a run that was killed goes on")
          ->group("Problem");
  command->add_option("--gpus", options->gpus, "Spread the shapes over so many GPUs; all; or some, as 0,2 [1]")
      ->needs(shapes)
      ->group("Device");
  command
      ->add_option("--shape-limit", options->shape_limit_seconds,
                   "With several GPUs: seconds for a shape, after which it goes to another one, once, and this one is "
                   "given up [60 + 10 budgets; no limit on the emulator]")
      ->check(positive_number())
      ->needs(shapes)
      ->group("Device");
  command->add_flag("--again", options->again, "Measure all shapes, also those tuned already")->needs(shapes);
  command->add_flag("--dry-run", options->dry_run, "Say what it would cost, and do nothing")->needs(shapes);
  command
      ->add_flag("--calibrate", options->calibrate,
                 "Fit the cost model to this device instead, in under a minute; no problem is needed")
      ->excludes(shapes);
  command->add_flag("--json", options->json, "For machines");
  command->footer(R"(
Examples:
  jitgemm tune -m 1536 -n 1792 -k 6016
  jitgemm tune --shapes shapes.txt --type bf16 --layout nt --tuning-budget 0.5
  jitgemm tune --shapes shapes.txt --dry-run       shapes, kernels and seconds
  jitgemm tune --calibrate                         the cost model's rates, for a device of another kind
  jitgemm tune --shapes shapes.txt --gpus all      one process a GPU, one database
)");
  command->callback([options] { tune(*options); });
}

}  // namespace jitgemm::cli
