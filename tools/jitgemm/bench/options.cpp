#include "bench/options.hpp"

namespace jitgemm::cli {

ContextOptions context_options_of(const BenchOptions& options) {
  if (!options.device.device_given() && cuda_devices().empty()) {
    throw Error(ErrorCode::no_device,
                "no GPU found, and times on a CPU mean nothing: add --device emulator to try the steps");
  }
  if (options.resume && options.csv.empty())
    throw Error(ErrorCode::invalid_option, "--resume goes on from a CSV file: add --csv");
  ContextOptions context_options = options.device.context_options();
  if (context_options.device == Device::compile_only) {
    throw Error(ErrorCode::invalid_option, "nothing can be measured on compile_only: leave --device out");
  }
  context_options.tuning = options.choices_known() ? Tuning::cached : Tuning::on;
  context_options.tuning_budget_seconds = options.tune_seconds.value_or(0.45 * options.seconds_per_shape);
  context_options.tuning_total_budget_seconds = 1e9;
  return context_options;
}

}  // namespace jitgemm::cli
