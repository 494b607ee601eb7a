#pragma once

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "jitgemm/jitgemm.hpp"
#include "tuning/plan.hpp"

namespace jitgemm::cli {

/// Compiles the kernels of a plan into the on-disk cache, in its order, while its tasks are being measured: on all
/// processors but the one that measures, and without touching the GPU. What does not compile is the tuner's to report.
class KernelsAhead {
 public:
  KernelsAhead(const ContextOptions& options, const TunePlan& plan);
  /// Waits for those under way and leaves the rest.
  ~KernelsAhead() { stop_ = true; }
  KernelsAhead(const KernelsAhead&) = delete;
  KernelsAhead& operator=(const KernelsAhead&) = delete;

 private:
  struct Kernel {
    const Problem* problem;
    const KernelConfig* config;
  };
  void work();

  Context context_;
  std::vector<Kernel> kernels_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::vector<std::jthread> threads_;  // last: they end before what they use
};

}  // namespace jitgemm::cli
