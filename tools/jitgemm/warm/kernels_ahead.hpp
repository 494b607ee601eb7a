#pragma once

#include <atomic>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include "jitgemm/jitgemm.hpp"

namespace jitgemm::cli {

/// Compiles kernels into the on-disk cache, in their order, while the first of them are being measured: on all
/// processors but the one that measures, and without touching the GPU. What does not compile is the tuner's to report.
class KernelsAhead {
 public:
  using Kernels = std::vector<std::pair<Problem, KernelConfig>>;
  /// Of an emulated device none: its processors are what is timed.
  KernelsAhead(const ContextOptions& options, const DeviceDescription& device, Kernels kernels);
  /// Waits for those under way and leaves the rest.
  ~KernelsAhead() { stop_ = true; }
  KernelsAhead(const KernelsAhead&) = delete;
  KernelsAhead& operator=(const KernelsAhead&) = delete;

 private:
  void work();

  Context context_;
  Kernels kernels_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::vector<std::jthread> threads_;  // last: they end before what they use
};

}  // namespace jitgemm::cli
