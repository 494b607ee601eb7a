#include "warm/kernels_ahead.hpp"

#include <algorithm>
#include <system_error>

namespace jitgemm::cli {
namespace {

ContextOptions compiling(ContextOptions options, const DeviceDescription& device) {
  options.tuning = Tuning::off;
  options.constraints = {};  // a typical device may have fewer SMs, and all that is compiled is pinned
  options.device = Device::compile_only;
  options.architecture = device.architecture;
  return options;
}

}  // namespace

KernelsAhead::KernelsAhead(const ContextOptions& options, const DeviceDescription& device, Kernels kernels)
    : context_(compiling(options, device)), kernels_(std::move(kernels)) {
  if (device.emulated) return;
  const std::size_t threads = std::max(2u, std::thread::hardware_concurrency()) - 1;
  try {
    while (threads_.size() < std::min(threads, kernels_.size())) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {  // as many as the system gives
  }
}

void KernelsAhead::work() {
  for (std::size_t i; !stop_ && (i = next_++) < kernels_.size();) {
    try {
      context_.compile(kernels_[i].first, kernels_[i].second);
    } catch (const Error&) {
    }
  }
}

}  // namespace jitgemm::cli
