#include "bench/shape.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "backend/backend.hpp"
#include "bench/draw.hpp"
#include "common/parallel.hpp"
#include "common/text.hpp"
#include "context_internals.hpp"
#include "core/epilogue_function.hpp"
#include "core/groups.hpp"
#include "core/problem.hpp"
#include "measure/launch_graph.hpp"
#include "measure/trial.hpp"
#include "plan/constraints.hpp"
#include "plan/ranking.hpp"
#include "tune/autotuner.hpp"
#include "tune/group_rows.hpp"
#include "tune/measurement.hpp"

namespace jitgemm::cli {
namespace {

constexpr std::size_t workspace_limit = std::size_t(64) << 20;  ///< of cuBLAS, and of each of ours
// Kernels that are timed for long enough to meet the power limit that they live under; and those of many that are
// screened.
constexpr double power_limited_us = 8, screened_power_limited_us = 40;

}  // namespace

ShapeBench::ShapeBench(const BenchOptions& options)
    : options_(options),
      context_options_(context_options_of(options)),
      choices_(parse_named_choices(options.choices)),
      tuner_(open_context(context_options_)),
      backend_(ContextInternals::backend(tuner_)),
      emulated_(backend_.device().emulated),
      stream_(backend_),
      base_(options.problem.problem(0, 0, 0)),
      inputs_(backend_, base_.a.type, base_.b.type) {
  for (const std::string& config : options.configs) pinned_.push_back(parse_kernel_config(config));
  if (!options.tuned_as.empty()) earlier_.emplace(options.tuned_as);
  workspace_ = DeviceMemory(backend_, workspace_limit);
  peers_.emplace(backend_, stream_.get(), workspace_, options);
  variants_ = variants(options, context_options_);
  for (const Variant& variant : variants_)
    choosers_.push_back(variant.chooses ? std::make_unique<VariantChooser>(variant) : nullptr);
  protocols_ = protocols_of(options, emulated_);
  if (options.scales) inputs_.add_scales();
  if (emulated_) return;
  const auto size = options.neighbour == "large" ? Neighbour::Size::large : Neighbour::Size::small;
  if (std::ranges::any_of(protocols_, &Protocol::mix)) neighbour_.emplace(backend_, size);
  if (options.eager) lead_.emplace(backend_);
}

void ShapeBench::compile_ahead(const std::vector<Shape>& shapes, Progress& progress) {
  if (!options_.choices_known()) return;
  ContextOptions serial_options = context_options_;
  serial_options.dependent_launch = false;
  std::optional<Context> serial;
  if (options_.without_early) serial.emplace(serial_options);
  const auto finished = [&](int count) { progress.update(count, int(shapes.size()), "compiling"); };
  parallel_for(
      int(shapes.size()), 0,
      [&](int i) {
        const Shape& shape = shapes[std::size_t(i)];
        try {
          const Problem p = normalise(options_.problem.problem(shape.m, shape.n, shape.k));
          if (wanted(options_.model)) tuner_.compile(p, first_candidates(tuner_, p).front());
          for (std::size_t j = 0; j < variants_.size(); ++j) {
            if (!choosers_[j] || variants_[j].in_order) continue;
            std::string note;  // which the shape's own turn takes
            if (const auto earlier = earlier_choice(p, variants_[j]))
              tuner_.compile(p, *earlier);
            else
              choosers_[j]->choose(p, true, note);
          }
          if (!wanted(options_.tuned)) return;
          const KernelConfig tuned = earlier_ ? earlier_->tuned(p) : tuner_.plan(p).config;
          tuner_.compile(p, tuned);
          if (serial) serial->compile(p, tuned);
        } catch (const Error&) {  // which the shape's own turn tells
        }
      },
      finished);
}

std::vector<BenchRecord> ShapeBench::blank_records(const Problem& problem) const {
  BenchRecord record;
  record.device = emulated_ ? "emulator" : tuner_.device().name;
  if (constrain(context_options_.constraints)) record.device += " " + to_string(context_options_.constraints);
  if (options_.scales) record.device += " scales";
  record.problem = normalise(problem);
  const double tiles = std::ceil(double(problem.m) / 128) * std::ceil(double(problem.n) / 256);
  record.waves = tiles * double(problem.batch) / std::max(1, tuner_.device().sm_count);
  record.floor_us = floor_us(record.problem);
  std::vector<BenchRecord> records(protocols_.size(), record);
  for (std::size_t i = 0; i < records.size(); ++i) records[i].protocol = protocols_[i];
  return records;
}

void ShapeBench::bench(std::vector<BenchRecord>& records) {
  const std::vector<BenchRecord> blank = records;
  try {
    bench_arms(records);
  } catch (const Error& error) {
    records = blank;
    for (BenchRecord& record : records) record.check = error.what();
  }
}

void ShapeBench::bench_arms(std::vector<BenchRecord>& records) {
  BenchRecord& record = records.front();
  std::vector<Protocol> protocols;
  for (const BenchRecord& each : records) protocols.push_back(each.protocol);
  const Problem& p = record.problem;
  // A Context of its own per shape: what captured launches own is gone with it.
  ContextOptions runner_options = context_options_;
  runner_options.tuning = Tuning::off;
  Context runner(runner_options);
  const std::vector<NamedProblem> compared = compared_with(p);
  std::vector<Problem> beside;
  for (const NamedProblem& other : compared) beside.push_back(other.problem);
  inputs_.prepare(p, !emulated_, beside);
  if (has_groups(p)) inputs_.set_group_rows(drawn_group_rows(p, parse_distribution(options_.distribution, p), 1));
  record.sets = inputs_.sets();

  BenchArms arms;
  add_ours(record, arms, runner);
  const auto contexts = add_others(record, arms, runner);
  if (has_groups(p))
    record.note_absent("no peer reads the sizes of groups on the device");
  else if (!has_epilogue_function(p))
    peers_->add(record, p, arms, inputs_, protocols, timing(0));
  else if (!options_.built_in.empty())
    peers_->add(record, compared.back().problem, arms, inputs_, protocols, timing(0));
  else
    record.note_absent("nobody else has this epilogue; --built-in says what they may know");
  if (const std::string wrong = arms.check(backend_, stream_.get(), p, inputs_); !wrong.empty()) {
    throw Error(ErrorCode::internal, wrong);
  }
  record.check = "ok";
  time(records, arms, protocols);
}

void ShapeBench::time(std::vector<BenchRecord>& records, BenchArms& arms, const std::vector<Protocol>& protocols) {
  BenchRecord& record = records.front();
  const auto time_all = [&](BenchArms& timed, const std::vector<Protocol>& in, double long_us) {
    if (emulated_) return;
    const double round_ms = record.floor_us > long_us ? 2.5 : 0.6;
    const double rounds = 0.4e3 * options_.seconds_per_shape / (double(timed.size() * protocols.size()) * round_ms);
    TimingOptions options = timing(round_ms);
    options.rounds = int(std::clamp(rounds, 5., 51.));
    timed.time(backend_, stream_.get(), inputs_, {in, options});
  };
  const bool finals = options_.finalists > 0 && !emulated_;
  time_all(arms, protocols, finals ? screened_power_limited_us : power_limited_us);
  const std::size_t others = record.others.size();
  // What the arms write are the first record's results, so that one comes last.
  for (std::size_t i = protocols.size(); i-- > 0;) {
    arms.report(protocols[i]);
    if (finals)
      add_finalists(record, arms, [&](BenchArms& last) {
        time_all(last, {protocols[i]}, power_limited_us);
        last.report(protocols[i]);
      });
    if (i == 0) return;
    records[i] = record;
    records[i].protocol = protocols[i];
    record.others.resize(others);
  }
}

void ShapeBench::add_finalists(BenchRecord& record, BenchArms arms, const std::function<void(BenchArms&)>& time_again) {
  std::vector<const ArmResult*> always{&record.model,  &record.tuned,    &record.best,
                                       &record.cublas, &record.cublaslt, &record.triton};
  for (const NamedArm& other : record.others) always.push_back(&other.result);
  const auto finalists = arms.keep_fastest(std::size_t(options_.finalists), always);
  time_again(arms);
  for (std::size_t i = 0; i < finalists.size(); ++i)
    record.others.push_back({"finalist" + std::to_string(i + 1), *finalists[i]});
}

TimingOptions ShapeBench::timing(double round_ms) {
  TimingOptions options{.round_ms = round_ms, .warm_up_ms = warm_up_ms};
  if (neighbour_) options.neighbour = [this] { neighbour_->launch(stream_.get()); };
  if (lead_) options.eager = &*lead_;
  return options;
}

bool ShapeBench::wanted(bool flag) const {
  return flag || !(options_.derived || !variants_.empty() || !choices_.empty() || options_.model || options_.tuned ||
                   options_.best || !pinned_.empty() || !options_.draw.empty());
}

std::vector<ShapeBench::NamedProblem> ShapeBench::compared_with(const Problem& p) const {
  if (!has_epilogue_function(p)) return {};
  const NormalProblem plain = without_epilogue_function(normalise(p));
  std::vector<NamedProblem> problems{{"plain", plain, Beside::other}};
  if (options_.built_in.empty()) return problems;
  Problem built_in = plain;
  std::istringstream words(options_.built_in);
  for (std::string word; words >> word;) {
    const std::size_t at = word.find('=');
    set_field(built_in, word.substr(0, at), at == std::string::npos ? std::string() : word.substr(at + 1));
  }
  problems.push_back({"built_in", normalise(built_in), Beside::same});
  return problems;
}

bool ShapeBench::fits(Context& runner, const Problem& p, const KernelConfig& config) const {
  return runner.workspace_size(p, config) <= workspace_limit;
}

void ShapeBench::add(BenchArms& arms, ArmResult& result, Context& runner, const Problem& p, const KernelConfig& config,
                     const std::string& program, Beside beside) {
  if (!fits(runner, p, config)) {
    throw Error(ErrorCode::workspace_too_small,
                fmt::format("{} needs more than the {} of workspace that each side may use", to_string(config),
                            bytes_text(workspace_limit)));
  }
  const auto launch = [this, &runner, p, config](const Operands& operands) {
    Operands all = operands;
    all.workspace = workspace_.data();
    all.workspace_bytes = workspace_.bytes();
    if (!has_epilogue_function(p)) {
      all.epilogue = nullptr;
      all.epilogue_count = 0;
    }
    runner.gemm(p, all, stream_.get(), config);
  };
  arms.add(result, program, to_string(config), launch, {},
           beside == Beside::nothing ? std::nullopt : std::optional<Problem>(p), beside != Beside::other);
}

void ShapeBench::add_ours(BenchRecord& record, BenchArms& arms, Context& runner) {
  const Problem& p = record.problem;
  std::vector<KernelConfig> pinned = pinned_;
  for (const KernelConfig& config : draw(options_.draw, p, runner, options_.main_loop)) pinned.push_back(config);
  record.pinned.resize(pinned.size());
  compile(runner, p, pinned);
  for (std::size_t i = 0; i < pinned.size(); ++i) {
    record.pinned[i].config = to_string(pinned[i]);
    try {
      add(arms, record.pinned[i], runner, p, pinned[i]);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_config && error.code() != ErrorCode::workspace_too_small) throw;
      record.note_absent(error.what());
    }
  }

  const bool tuned = wanted(options_.tuned), best = wanted(options_.best);
  const bool by_choice = options_.repeats > 0 || options_.without_early || has_epilogue_function(p);
  const bool model = wanted(options_.model) || (by_choice && !tuned);
  if (model) add(arms, record.model, runner, p, first_candidates(runner, p).front());
  if (!tuned && !best) return;
  const Choices choices = !options_.main_loop.empty() ? screened(runner, p) : measured(record, runner);
  if (tuned) add(arms, record.tuned, runner, p, choices.tuned);
  if (best && choices.best) add(arms, record.best, runner, p, *choices.best);
}

std::vector<std::unique_ptr<Context>> ShapeBench::add_others(BenchRecord& record, BenchArms& arms, Context& runner) {
  const Problem& p = record.problem;
  std::vector<std::unique_ptr<Context>> contexts;
  record.others.reserve(3 + choices_.size() + variants_.size() + std::size_t(options_.repeats + options_.finalists));
  const auto add_other = [&](const std::string& name, Context& context, const KernelConfig& config,
                             const std::string& program) {
    record.others.push_back({name});
    add(arms, record.others.back().result, context, p, config, program);
  };
  if (options_.derived) {
    const RatedDevice device(backend_.device(), derived_rates(backend_.device()));
    for (const RankedConfig& ranked : rank(shape_of(normalise(p)), device, tuned_candidates)) {
      if (!fits(runner, p, ranked.config)) continue;
      add_other("derived", runner, ranked.config, "jitgemm");
      break;
    }
  }
  for (const NamedChoice& choice : choices_) {
    ContextOptions options = context_options_;
    options.tuning = Tuning::cached;
    options.cache_dir = choice.directory.string();
    options.at_hand_within = options_.at_hand.value_or(0);
    add_other(choice.name, runner, Context(options).plan(p).config, "jitgemm");
  }
  const ArmResult& chosen = record.tuned.config.empty() ? record.model : record.tuned;
  for (std::size_t i = 0; i < variants_.size(); ++i) {
    const Variant& variant = variants_[i];
    const KernelConfig config = choosers_[i] ? variant_choice(record, i) : parse_kernel_config(chosen.config);
    if (variant.options.dependent_launch == context_options_.dependent_launch) {
      add_other(variant.name, runner, config, "jitgemm");
      continue;
    }
    // Without early launch they are other kernels, so an arm that is like no other.
    ContextOptions options = variant.options;
    options.tuning = Tuning::off;
    contexts.push_back(std::make_unique<Context>(options));
    add_other(variant.name, *contexts.back(), config, variant.name);
  }
  for (const NamedProblem& other : compared_with(p)) {
    record.others.push_back({other.name});
    try {
      add(arms, record.others.back().result, runner, other.problem, parse_kernel_config(chosen.config), other.name,
          other.beside);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_config && error.code() != ErrorCode::workspace_too_small) throw;
      record.note_absent(other.name + ": " + error.what());
    }
  }
  // The first arm's configuration again, as arms of their own. Every second one has a module of its own, too.
  for (int i = 0; i < options_.repeats; ++i) {
    const std::string name = "repeat" + std::to_string(i + 1);
    if (i % 2 == 1) {
      ContextOptions options = context_options_;
      options.tuning = Tuning::off;
      contexts.push_back(std::make_unique<Context>(options));
    }
    add_other(name, i % 2 == 1 ? *contexts.back() : runner, parse_kernel_config(chosen.config), name);
  }
  return contexts;
}

ShapeBench::Choices ShapeBench::measured(BenchRecord& record, Context& runner) {
  const Problem& p = record.problem;
  if (earlier_) return {earlier_->tuned(p), std::nullopt};
  if (options_.frozen) {
    const Plan plan = tuner_.plan(p);
    if (plan.source != PlanSource::exact)
      record.note_absent(
          fmt::format("tuned: the database has nothing, so this is the choice of: {}", to_string(plan.source)));
    return {plan.config, std::nullopt};
  }
  compile(tuner_, p, first_candidates(tuner_, p));
  const TuneReport report = tuner_.tune(p);
  const TunedCandidate* best = nullptr;
  for (const TunedCandidate& candidate : report.candidates) {
    const bool counts = candidate.skipped.empty() && candidate.measured_us > 0 && fits(runner, p, candidate.config);
    if (counts && (!best || candidate.measured_us < best->measured_us)) best = &candidate;
  }
  return {report.plan.config, best ? best->config : report.plan.config};
}

std::optional<KernelConfig> ShapeBench::earlier_choice(const Problem& p, const Variant& variant) const {
  return earlier_ ? earlier_->of_arm(p, variant.name) : std::nullopt;
}

KernelConfig ShapeBench::variant_choice(BenchRecord& record, std::size_t variant) {
  if (const auto earlier = earlier_choice(record.problem, variants_[variant])) return *earlier;
  std::string note;
  const KernelConfig config = choosers_[variant]->choose(record.problem, options_.choices_known(), note);
  if (!note.empty()) record.note_absent(note);
  return config;
}

ShapeBench::Choices ShapeBench::screened(Context& runner, const Problem& p) {
  const std::vector<KernelConfig> configs = first_candidates(runner, p);
  if (emulated_) return {configs.front(), configs.front()};
  compile(runner, p, configs);
  BenchArms arms;
  std::vector<ArmResult> results(configs.size());
  for (std::size_t i = 0; i < configs.size(); ++i) add(arms, results[i], runner, p, configs[i]);
  TimingOptions brief = timing(1);
  brief.rounds = 3;
  brief.max_launches = 200;
  brief.warm_up_ms = 0;
  arms.time(backend_, stream_.get(), inputs_, {{protocols_.front()}, brief});
  arms.report(protocols_.front());
  const KernelConfig best =
      configs[std::size_t(std::min_element(results.begin(), results.end(), faster) - results.begin())];
  return {best, best};
}

std::vector<KernelConfig> ShapeBench::first_candidates(Context& context, const Problem& p) const {
  std::vector<KernelConfig> configs;
  for (const Plan& plan : context.candidates(p)) {
    if (configs.size() == std::size_t(tuned_candidates)) break;
    if (!options_.main_loop.empty() && to_string(plan.config.main_loop) != options_.main_loop) continue;
    if (plan.workspace_bytes <= workspace_limit) configs.push_back(plan.config);
  }
  if (configs.empty()) {
    throw Error(ErrorCode::invalid_config, "no configuration of this main loop is legal here: leave --main-loop out");
  }
  return configs;
}

void ShapeBench::compile(Context& context, const Problem& p, const std::vector<KernelConfig>& configs) {
  parallel_for(int(configs.size()), 0, [&](int i) {
    try {
      context.compile(p, configs[std::size_t(i)]);
    } catch (const Error&) {
    }
  });
}

}  // namespace jitgemm::cli
