#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "jit/kernel_cache.hpp"
#include "jit/kernel_store.hpp"
#include "plan/planner.hpp"
#include "ready_table.hpp"

namespace jitgemm {

/// The configurations whose kernels need no compiler: loaded, or whole in either layer of the disk cache. Thread-safe.
class KernelsAtHand {
 public:
  /// All of them outlive this.
  KernelsAtHand(Backend& backend, KernelStore& store, KernelCache& cache, ReadyTable& ready_table)
      : backend_(backend), store_(store), cache_(cache), ready_table_(ready_table) {}

  bool has(const NormalProblem& problem, const KernelConfig& config) const;
  /// The one with the best prediction that needs no more workspace than this; nullopt if none is expected to take
  /// `most_us` or less. Candidates are the planner's first and all configurations that the cache was found to hold when
  /// this was first asked, or that have been ready since.
  std::optional<RankedConfig> best(const Planner& planner, double most_us, std::size_t most_workspace = SIZE_MAX);

 private:
  std::vector<KernelConfig> configs();

  Backend& backend_;
  KernelStore& store_;
  KernelCache& cache_;
  ReadyTable& ready_table_;
  std::mutex mutex_;
  std::optional<std::vector<KernelConfig>> cached_;  // of the disk cache, each once
};

}  // namespace jitgemm
