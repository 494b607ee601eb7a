#include "run/command.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>

#include "common/options.hpp"
#include "common/progress.hpp"
#include "common/text.hpp"
#include "measure/inputs.hpp"
#include "measure/launch_graph.hpp"
#include "measure/speed.hpp"
#include "measure/trial.hpp"
#include "util/environment.hpp"

namespace jitgemm::cli {
namespace {

struct Options {
  ProblemOptions problem;
  DeviceOptions device;
  std::string distribution;  // empty: uniform
  bool json = false;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// What a step asked of the cache and the compiler.
std::string kernels_text(const Counters& before, const Counters& after) {
  const auto compiles = after.compiles - before.compiles, disk_hits = after.disk_hits - before.disk_hits;
  if (compiles == 0 && disk_hits == 0) return "already in memory";
  if (compiles == 0)
    return disk_hits == 1 ? "from the disk cache" : counted(disk_hits, "kernel") + " from the disk cache";
  if (disk_hits == 0) return compiles == 1 ? "compiled" : counted(compiles, "kernel") + " compiled";
  return fmt::format("{} compiled, {} from the disk cache", counted(compiles, "kernel"), disk_hits);
}

class Run {
 public:
  explicit Run(const Options& options)
      : options_(options),
        context_options_(checked(options)),
        context_(open_context(context_options_)),
        emulated_(context_.device().emulated),
        config_(options.problem.config()),
        problem_(checkable(options.problem.problem(emulated_ ? 256 : 4096))),
        distribution_(parse_distribution(options.distribution, problem_)),
        plan_(config_ ? context_.plan(problem_, *config_) : context_.plan(problem_)) {
    options.device.announce_emulator(context_options_);
  }

  void all() {
    describe();
    choose();
    compile();
    Trial trial(context_, plan_, distribution_);
    const bool passed = run_and_check(trial);
    if (!emulated_) measure(trial);
    point_to_source();
    if (options_.json) print_json(json_);
    if (!passed) throw Error(ErrorCode::internal, "D is wrong: please report the problem and configuration above");
  }

 private:
  static ContextOptions checked(const Options& options) {
    ContextOptions context_options = options.device.context_options();
    if (context_options.device == Device::compile_only) {
      throw Error(ErrorCode::invalid_option, "nothing runs on compile_only: use `jitgemm warm` or --device emulator");
    }
    return context_options;
  }

  template <typename... Args>
  void say(std::string_view topic, fmt::format_string<Args...> text, Args&&... args) const {
    if (!options_.json) fmt::print("{:<9} {}\n", topic, fmt::format(text, std::forward<Args>(args)...));
    std::fflush(stdout);
  }

  void describe() {
    const DeviceDescription device = context_.device();
    if (emulated_) {
      say("device", "{}: a CPU, so no times below; kernels for {}", device.name, device.architecture);
    } else {
      say("device", "{}, {}, {} SMs, {}", device.name, device.architecture, device.sm_count,
          bytes_text(double(device.memory_bytes)));
    }
    json_["device"] = to_json(device);
    say("problem", "{}", to_string(problem_));
  }

  /// Unless told otherwise, on the emulator, too.
  bool tunes() const {
    if (context_options_.tuning) return *context_options_.tuning == Tuning::on;
    return environment("JITGEMM_TUNING").value_or("on") == "on";
  }

  void choose() {
    const auto begin = std::chrono::steady_clock::now();
    const Counters before = context_.counters();
    const bool is_measured = plan_.source == PlanSource::exact || plan_.source == PlanSource::measured ||
                             (plan_.source == PlanSource::at_hand && plan_.measured_us > 0);
    const bool tune = !config_ && multiplies(problem_) && tunes() && !is_measured;
    if (tune) {
      Progress progress("tuning");
      const TuneReport report = context_.tune(problem_, [&](int done, int total) { progress.update(done, total); });
      progress.hide();
      int measured = 0;
      for (const TunedCandidate& candidate : report.candidates) measured += candidate.skipped.empty();
      say("tuning", "measured {} of {} candidates in {}: {}", measured, report.candidates.size(),
          duration_text(seconds_since(begin)), kernels_text(before, context_.counters()));
      plan_ = report.plan;
      json_["tuning"] = to_json(report);
    }
    say("config", "{}", to_string(plan_.config));
    say("why", "{}: {}", to_string(plan_.source), plan_.why);
  }

  void compile() {
    const auto begin = std::chrono::steady_clock::now();
    const Counters before = context_.counters();
    plan_ = config_ ? context_.compile(problem_, *config_) : context_.compile(problem_, plan_.config);
    const double seconds = seconds_since(begin);
    const std::string how = kernels_text(before, context_.counters());
    say("kernel", "{} in {}{}", how, duration_text(seconds),
        emulated_ ? std::string()
                  : fmt::format("; {} registers, {} bytes spilled, {} of shared memory", plan_.registers,
                                plan_.spill_bytes, bytes_text(double(plan_.smem_bytes))));
    json_["plan"] = to_json(plan_);
    json_["kernel"] = {{"how", how}, {"seconds", seconds}};
  }

  bool run_and_check(Trial& trial) {
    const double seconds = trial.run();
    const Check check = trial.check();
    if (emulated_) say("run", "{} on the emulator", duration_text(seconds));
    say("check", "{}: {} of D against float64{}, the worst off by {:.3g} where rounding may cost {:.3g}",
        check.passed() ? "right" : "WRONG", check.whole ? "all elements" : fmt::format("{} elements", check.elements),
        check.nans > 0 ? fmt::format(", {} of them NaN in both", check.nans) : "", check.error, check.allowed);
    if (!check.passed())
      say("", "{} = {}, should be {}", element_name(plan_.problem, check.worst), check.got, check.expected);
    json_["check"] = {{"passed", check.passed()},
                      {"elements", check.elements},
                      {"whole", check.whole},
                      {"error", check.error},
                      {"allowed", check.allowed}};
    return check.passed();
  }

  void measure(Trial& trial) {
    const Timing timing = trial.time();
    const double speed = tflops(plan_.problem, timing.median_us);
    say("time", "{:.2f} us (spread {:.1f} %), {:.1f} {}; median of 5 rounds of {} launches, inputs not in the L2",
        timing.median_us, 100 * timing.spread, speed, plan_.problem.d.type == s32 ? "TOP/s" : "TFLOP/s",
        timing.launches);
    json_["time"] = {
        {"median_us", timing.median_us}, {"spread", timing.spread}, {"tflops", speed}, {"floor_us", trial.floor_us()}};
  }

  void point_to_source() const {
    say("source", "jitgemm source{} {} --config \"{}\"", emulated_ ? " --device emulator" : "",
        options_.problem.command_line_of(problem_), to_string(plan_.config));
  }

  const Options& options_;
  ContextOptions context_options_;
  Context context_;
  bool emulated_;
  std::optional<KernelConfig> config_;
  Problem problem_;
  Distribution distribution_;
  Plan plan_;
  nlohmann::ordered_json json_;
};

}  // namespace

void add_run(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("run", "Tune, compile and run one GEMM on random matrices, and check it");
  options->problem.add_to(*command);
  options->device.add_to(*command);
  options->device.add_tuning_to(*command, "on");
  command->add_option("--distribution", options->distribution,
                      "Of rows among groups: equal, uniform (by chance; the default) or zipf (by chance, the ith group "
                      "1 / i as likely)");
  command->add_flag("--json", options->json, "For machines");
  command->footer(R"(
Without sizes: 4096 x 4096 x 4096 on a GPU, 256 x 256 x 256 on the emulator.
Arrays of --epilogue are random as all others are, its scalars spread over (0, 1) in their order, whole from 1 on where
sums are integers; D and what it writes besides are compared with its function of sums in float64.
Examples:
  jitgemm run -m 1536 -n 1792 -k 6016 --type bf16 --d f32
  jitgemm run -m 300 -n 317 -k 65 --layout nt --activation gelu_tanh --bias --beta 0.5 --tuning off
  jitgemm run -m 512 -n 512 -k 256 --type e4m3 --b e5m2 --layout nt --batch 8 --stride-b 0
  jitgemm run -m 4096 -n 4096 -k 4096 --type bf16 --epilogue tools/examples/epilogues/bias_residual.txt
  jitgemm run -m 512 -n 768 -k 512 --type bf16 --layout nt --groups 16 --distribution zipf
  jitgemm run --config "sm80 128x128x32 group_m=8 stages=4 warps=4 schedule=stream_k grid=132"
)");
  command->callback([options] { Run(*options).all(); });
}

}  // namespace jitgemm::cli
