#include "seed/bench.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "backend/backend.hpp"
#include "common/parallel.hpp"
#include "common/text.hpp"
#include "context_internals.hpp"
#include "core/problem.hpp"
#include "measure/launch_graph.hpp"
#include "tune/autotuner.hpp"
#include "tune/measurement.hpp"
#include "util/output_file.hpp"

namespace jitgemm::cli {
namespace {

constexpr std::size_t workspace_limit = std::size_t(64) << 20;  ///< of cuBLAS, and of each of ours
constexpr double screening_ms = 1;

ContextOptions checked(const SeedOptions& options) {
  ContextOptions context_options = options.device.context_options();
  if (context_options.device == Device::compile_only) {
    throw Error(ErrorCode::invalid_option, "nothing runs on compile_only: leave --device out");
  }
  context_options.tuning = options.frozen ? Tuning::cached : Tuning::on;
  context_options.tuning_budget_seconds = options.tune_seconds;
  context_options.tuning_total_budget_seconds = 1e9;
  return context_options;
}

}  // namespace

SeedBench::SeedBench(const SeedOptions& options)
    : context_options_(checked(options)),
      tuner_(open_context(context_options_)),
      backend_(ContextInternals::backend(tuner_)),
      emulated_(backend_.device().emulated),
      stream_(backend_),
      workspace_(backend_, workspace_limit) {
  options.device.announce_emulator(context_options_);
  if (!options.triton_manifest.empty()) triton_ = std::make_unique<TritonPeer>(options.triton_manifest);
  if (emulated_) triton_ = nullptr;
  if (options.peers && !emulated_) peers_ = make_peers(stream_.get(), workspace_.data(), workspace_limit);
}

nlohmann::ordered_json SeedBench::description() const {
  return {{"device", to_json(tuner_.device())},
          {"emulated", emulated_},
          {"library", JITGEMM_VERSION},
          {"cublas", peers_ ? peers_->version() : ""},
          {"triton", triton_ ? triton_->version() : ""}};
}

void SeedBench::print_description() const {
  const DeviceDescription device = tuner_.device();
  fmt::print("{} ({}, {} SMs)", device.name, device.architecture, device.sm_count);
  if (peers_) fmt::print("; {}", peers_->version());
  if (triton_) fmt::print("; {}", triton_->version());
  fmt::print("{}\n", emulated_ ? ": a CPU, so small sizes and no times" : "");
  std::fflush(stdout);
}

void SeedBench::begin(const Problem& problem) {
  arms_ = {};
  problem_ = normalise(problem);
  if (!inputs_ || input_type_ != problem.a.type) {
    inputs_.reset();
    inputs_.emplace(backend_, problem.a.type);
    input_type_ = problem.a.type;
  }
  inputs_->prepare(problem_, !emulated_);
  // A Context of its own per problem: what captured launches own is gone with it.
  ContextOptions runner_options = context_options_;
  runner_options.tuning = Tuning::off;
  runner_.reset();
  runner_.emplace(runner_options);
}

Operands SeedBench::with_workspace(Operands operands) const {
  operands.workspace = workspace_.data();
  operands.workspace_bytes = workspace_.bytes();
  return operands;
}

bool SeedBench::fits(const KernelConfig& config) {
  return runner_->workspace_size(problem_, config) <= workspace_limit;
}

void SeedBench::add_ours(ArmResult& result, const KernelConfig& config) {
  arms_.add(result, "jitgemm", to_string(config), [this, config](const Operands& operands) {
    runner_->gemm(problem_, with_workspace(operands), stream_.get(), config);
  });
}

bool SeedBench::add_cublas(ArmResult& result) {
  const bool its_type = problem_.a.type == f16 || problem_.a.type == bf16;
  if (!peers_ || !its_type || problem_.epilogue.activation != Activation::none) return false;
  peers_->prepare(problem_, 1);
  arms_.add(result, "cublas", "default", [this](const Operands& operands) { peers_->gemm(operands); });
  return true;
}

bool SeedBench::add_triton(ArmResult& result) {
  if (!triton_) return false;
  const PeerCandidates tutorial = triton_->candidates(problem_, stream_.get());
  const int run =
      arms_.add_fastest(result, tutorial, backend_, stream_.get(), *inputs_,
                        {{Protocol{}}, {.round_ms = screening_ms, .max_launches = 200, .warm_up_ms = warm_up_ms}});
  if (run < tutorial.count) {
    throw Error(ErrorCode::launch_failed, fmt::format("{} of {} Triton kernels do not run: leave --triton-manifest out",
                                                      tutorial.count - run, tutorial.count));
  }
  return run > 0;
}

KernelConfig SeedBench::choice() {
  const Plan plan = tuner_.plan(problem_);
  const bool known = plan.source == PlanSource::exact || plan.source == PlanSource::measured;
  if (emulated_ || known || context_options_.tuning != Tuning::on) return plan.config;

  std::vector<Plan> first = tuner_.candidates(problem_);
  first.resize(std::min(first.size(), std::size_t(tuned_candidates)));
  parallel_for(int(first.size()), 0, [&](int i) {  // ahead, so that the budget goes into measuring
    try {
      tuner_.compile(problem_, first[std::size_t(i)].config);
    } catch (const Error&) {  // the tuner's to report
    }
  });
  const TuneReport report = tuner_.tune(problem_);
  if (fits(report.plan.config)) return report.plan.config;
  const TunedCandidate* best = nullptr;
  for (const TunedCandidate& candidate : report.candidates) {
    const bool counts = candidate.skipped.empty() && candidate.measured_us > 0 && fits(candidate.config);
    if (counts && (!best || candidate.measured_us < best->measured_us)) best = &candidate;
  }
  return best ? best->config : plan.config;
}

Plan SeedBench::compiled(const KernelConfig& config) { return runner_->compile(problem_, config); }

void SeedBench::run(const KernelConfig& config, const Operands& operands) {
  runner_->gemm(problem_, with_workspace(operands), stream_.get(), config);
  backend_.synchronize(stream_.get());
}

bool SeedBench::run_cublas(const Operands& operands) {
  if (!peers_ || (problem_.a.type != f16 && problem_.a.type != bf16)) return false;
  peers_->prepare(problem_, 1);
  peers_->gemm(operands);
  backend_.synchronize(stream_.get());
  return true;
}

void SeedBench::check() {
  const std::string wrong = arms_.check(backend_, stream_.get(), problem_, *inputs_);
  if (!wrong.empty()) throw Error(ErrorCode::internal, fmt::format("{}: {}", to_string(problem_), wrong));
}

void SeedBench::time(const TimingOptions& options) {
  if (emulated_) return;
  arms_.time(backend_, stream_.get(), *inputs_, {{Protocol{}}, options});
  arms_.report(Protocol{});
}

void write_file(const std::string& file, const std::string& text) {
  std::string why;
  if (!file.empty() && !write_output(file, text, &why)) {
    throw Error(ErrorCode::io, "cannot write " + file + ": " + why + "; write elsewhere");
  }
}

nlohmann::ordered_json ms_json(double us) {
  if (us > 0) return us / 1e3;
  return nullptr;
}

KernelConfig notebook_config(const SeedOptions& options, bool emulated, int grid, bool two_tiles) {
  const char* tile =
      emulated ? "sm80 32x64x32 group_m=8 stages=4 warps=2" : "sm80 128x128x32 group_m=8 stages=4 warps=4";
  KernelConfig config = parse_kernel_config(options.tile.empty() ? tile : options.tile);
  config.splits = 1;
  config.grid = grid;
  config.schedule = grid == 0   ? Schedule::data_parallel
                    : two_tiles ? Schedule::stream_k_two_tile
                                : Schedule::stream_k_one_tile;
  return config;
}

}  // namespace jitgemm::cli
