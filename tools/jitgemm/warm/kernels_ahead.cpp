#include "warm/kernels_ahead.hpp"

#include <algorithm>
#include <system_error>

namespace jitgemm::cli {
namespace {

ContextOptions compiling(ContextOptions options, const DeviceInfo& device) {
  options.tuning = Tuning::off;
  options.constraints = {};  // a typical device may have fewer SMs, and all that is compiled is pinned
  options.device = Device::compile_only;
  options.architecture = device.architecture();
  return options;
}

}  // namespace

KernelsAhead::KernelsAhead(const ContextOptions& options, const TunePlan& plan)
    : context_(compiling(options, plan.device)) {
  if (plan.device.emulated) return;  // its processors are what is timed
  for (const TuneTask& task : plan.tasks) {
    for (const RankedConfig& candidate : task.candidates) kernels_.push_back({&task.problem, &candidate.config});
  }
  const std::size_t threads = std::max(2u, std::thread::hardware_concurrency()) - 1;
  try {
    while (threads_.size() < std::min(threads, kernels_.size())) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {  // as many as the system gives
  }
}

void KernelsAhead::work() {
  for (std::size_t i; !stop_ && (i = next_++) < kernels_.size();) {
    try {
      context_.compile(*kernels_[i].problem, *kernels_[i].config);
    } catch (const Error&) {
    }
  }
}

}  // namespace jitgemm::cli
