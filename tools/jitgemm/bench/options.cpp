#include "bench/options.hpp"

#include "core/type_rules.hpp"
#include "measure/trial.hpp"

namespace jitgemm::cli {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::invalid_option, why); }

/// Options that say nothing without others, or nothing new beside them.
void check_together(const BenchOptions& options, const ContextOptions& context_options) {
  if (options.resume && options.csv.empty()) refuse("--resume goes on from a CSV file: add --csv");
  if (!options.neighbour.empty() && options.protocol == "rep")
    refuse("--neighbour stands between launches of the protocol mix: use --protocol mix or both");
  if (options.scales && !takes_scales(options.problem.problem(0, 0, 0)))
    refuse("--scales are for e4m3 and e5m2, and for s8 with a floating-point D: add --type e4m3, or leave them out");
  static_cast<void>(parse_distribution(options.distribution, options.problem.problem(0, 0, 0)));
  if (!options.built_in.empty() && !options.problem.has_epilogue())
    refuse("--built-in says with the library's own fields what --epilogue says: add that, or leave --built-in out");
  if (options.without_early && !context_options.dependent_launch)
    refuse("--without-early is compared with early launches: leave it or --no-dependent-launch out");
  if (options.invariant && context_options.constraints.batch_invariant)
    refuse("--invariant is compared with choices that are not batch-invariant: leave it or --batch-invariant out");
  if (options.at_hand && *options.at_hand < 1) refuse("--at-hand is a factor from 1 up: 1.05, say");
}

}  // namespace

std::vector<Protocol> protocols_of(const BenchOptions& options, bool emulated) {
  const std::string which = !options.protocol.empty() ? options.protocol : emulated ? "rep" : "both";
  std::vector<Protocol> protocols;
  if (which != "mix") protocols.push_back({.eager = options.eager});
  if (which != "rep") protocols.push_back({.mix = true, .large = options.neighbour == "large", .eager = options.eager});
  return protocols;
}

ContextOptions context_options_of(const BenchOptions& options) {
  if (!options.device.device_given() && cuda_devices().empty()) {
    throw Error(ErrorCode::no_device,
                "no GPU found, and times on a CPU mean nothing: add --device emulator to try the steps");
  }
  ContextOptions context_options = options.device.context_options();
  if (context_options.device == Device::compile_only) {
    throw Error(ErrorCode::invalid_option, "nothing can be measured on compile_only: leave --device out");
  }
  check_together(options, context_options);
  context_options.tuning = options.choices_known() ? Tuning::cached : Tuning::on;
  context_options.tuning_budget_seconds = options.tune_seconds.value_or(0.45 * options.seconds_per_shape);
  context_options.tuning_total_budget_seconds = 1e9;
  return context_options;
}

}  // namespace jitgemm::cli
