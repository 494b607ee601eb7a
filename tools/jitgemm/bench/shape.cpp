#include "bench/shape.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "backend/backend.hpp"
#include "bench/draw.hpp"
#include "common/parallel.hpp"
#include "common/text.hpp"
#include "context_internals.hpp"
#include "core/problem.hpp"
#include "measure/launch_graph.hpp"
#include "plan/constraints.hpp"
#include "plan/ranking.hpp"
#include "tune/autotuner.hpp"
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
  if (!options.tuned_as.empty()) earlier_ = read_csv(options.tuned_as);
  workspace_ = DeviceMemory(backend_, workspace_limit);
  peers_.emplace(backend_, stream_.get(), workspace_, options);
}

void ShapeBench::compile_ahead(const std::vector<Shape>& shapes, Progress& progress) {
  if (!options_.choices_known()) return;
  const auto finished = [&](int count) { progress.update(count, int(shapes.size()), "compiling"); };
  parallel_for(
      int(shapes.size()), 0,
      [&](int i) {
        const Shape& shape = shapes[std::size_t(i)];
        try {
          const Problem p = normalise(options_.problem.problem(shape.m, shape.n, shape.k));
          if (wanted(options_.model)) tuner_.compile(p, first_candidates(tuner_, p).front());
          if (wanted(options_.tuned))
            tuner_.compile(p, options_.tuned_as.empty() ? tuner_.plan(p).config : earlier_choice(p));
        } catch (const Error&) {  // which the shape's own turn tells
        }
      },
      finished);
}

BenchRecord ShapeBench::blank_record(const Problem& problem) const {
  BenchRecord record;
  record.device = emulated_ ? "emulator" : tuner_.device().name;
  if (constrain(context_options_.constraints)) record.device += " " + to_string(context_options_.constraints);
  record.problem = normalise(problem);
  const double tiles = std::ceil(double(problem.m) / 128) * std::ceil(double(problem.n) / 256);
  record.waves = tiles * double(problem.batch) / std::max(1, tuner_.device().sm_count);
  record.floor_us = floor_us(record.problem);
  return record;
}

void ShapeBench::bench(BenchRecord& record) {
  try {
    bench_arms(record);
  } catch (const Error& error) {
    record.check = error.what();
    for (ArmResult* arm :
         {&record.model, &record.tuned, &record.best, &record.cublas, &record.cublaslt, &record.triton}) {
      *arm = {};
    }
    record.pinned.clear();
    record.others.clear();
    record.absent.clear();
  }
}

void ShapeBench::bench_arms(BenchRecord& record) {
  const Problem& p = record.problem;
  // A Context of its own per shape: what captured launches own is gone with it.
  ContextOptions runner_options = context_options_;
  runner_options.tuning = Tuning::off;
  Context runner(runner_options);
  inputs_.prepare(p, !emulated_);
  record.sets = inputs_.sets();

  BenchArms arms;
  add_ours(record, arms, runner);
  const auto contexts = add_others(record, arms, runner);
  peers_->add(record, arms, inputs_);
  if (const std::string wrong = arms.check(backend_, stream_.get(), p, inputs_); !wrong.empty()) {
    throw Error(ErrorCode::internal, wrong);
  }
  record.check = "ok";
  if (emulated_) return;
  const auto time = [&](double long_us) {
    const double round_ms = record.floor_us > long_us ? 2.5 : 0.6;
    const double rounds = 0.4e3 * options_.seconds_per_shape / (double(arms.size()) * round_ms);
    arms.time(backend_, stream_.get(), inputs_,
              {.rounds = int(std::clamp(rounds, 5., 51.)), .round_ms = round_ms, .warm_up_ms = warm_up_ms});
  };
  time(options_.finalists > 0 ? screened_power_limited_us : power_limited_us);
  if (options_.finalists == 0) return;
  std::vector<const ArmResult*> always{&record.model,  &record.tuned,    &record.best,
                                       &record.cublas, &record.cublaslt, &record.triton};
  for (const NamedArm& other : record.others) always.push_back(&other.result);
  const auto finalists = arms.keep_fastest(std::size_t(options_.finalists), always);
  time(power_limited_us);
  for (std::size_t i = 0; i < finalists.size(); ++i)
    record.others.push_back({"finalist" + std::to_string(i + 1), *finalists[i]});
}

bool ShapeBench::wanted(bool flag) const {
  return flag || !(options_.derived || !choices_.empty() || options_.model || options_.tuned || options_.best ||
                   !pinned_.empty() || !options_.draw.empty());
}

bool ShapeBench::fits(Context& runner, const Problem& p, const KernelConfig& config) const {
  return runner.workspace_size(p, config) <= workspace_limit;
}

void ShapeBench::add(BenchArms& arms, ArmResult& result, Context& runner, const Problem& p, const KernelConfig& config,
                     const std::string& program) {
  if (!fits(runner, p, config)) {
    throw Error(ErrorCode::workspace_too_small,
                fmt::format("{} needs more than the {} of workspace that each side may use", to_string(config),
                            bytes_text(workspace_limit)));
  }
  arms.add(result, program, to_string(config), [this, &runner, p, config](const Operands& operands) {
    Operands all = operands;
    all.workspace = workspace_.data();
    all.workspace_bytes = workspace_.bytes();
    runner.gemm(p, all, stream_.get(), config);
  });
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
  const bool model = wanted(options_.model) || (options_.repeats > 0 && !tuned);
  if (model) add(arms, record.model, runner, p, first_candidates(runner, p).front());
  if (!tuned && !best) return;
  const Choices choices = !options_.main_loop.empty() ? screened(runner, p) : measured(record, runner);
  if (tuned) add(arms, record.tuned, runner, p, choices.tuned);
  if (best && choices.best) add(arms, record.best, runner, p, *choices.best);
}

std::vector<std::unique_ptr<Context>> ShapeBench::add_others(BenchRecord& record, BenchArms& arms, Context& runner) {
  const Problem& p = record.problem;
  std::vector<std::unique_ptr<Context>> contexts;
  record.others.reserve(1 + choices_.size() + std::size_t(options_.repeats + options_.finalists));
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
    add_other(choice.name, runner, Context(options).plan(p).config, "jitgemm");
  }
  // The first arm's configuration again, as arms of their own. Every second one has a module of its own, too.
  const ArmResult& chosen = record.tuned.config.empty() ? record.model : record.tuned;
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
  if (!options_.tuned_as.empty()) return {earlier_choice(p), std::nullopt};
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

KernelConfig ShapeBench::earlier_choice(const Problem& p) const {
  const std::string name = to_string(p);
  for (const BenchRecord& record : earlier_) {
    if (!record.tuned.config.empty() && to_string(record.problem) == name)
      return parse_kernel_config(record.tuned.config);
  }
  throw Error(ErrorCode::io, options_.tuned_as + " has no tuned choice for this shape: tune it, and use --frozen");
}

ShapeBench::Choices ShapeBench::screened(Context& runner, const Problem& p) {
  const std::vector<KernelConfig> configs = first_candidates(runner, p);
  if (emulated_) return {configs.front(), configs.front()};
  compile(runner, p, configs);
  BenchArms arms;
  std::vector<ArmResult> results(configs.size());
  for (std::size_t i = 0; i < configs.size(); ++i) add(arms, results[i], runner, p, configs[i]);
  arms.time(backend_, stream_.get(), inputs_, {.rounds = 3, .round_ms = 1, .max_launches = 200});
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
