#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
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

  struct Limits {
    double most_us = HUGE_VAL;  ///< predicted
    std::size_t most_workspace = SIZE_MAX;
  };

  bool has(const NormalProblem& problem, const KernelConfig& config) const;
  /// Whether tuning the problem would need no compiler for what checks results.
  bool has_check(const NormalProblem& problem) const;
  /// So many of the best predicted within the limits, as short lists are. Candidates are all refits() of the kernels of
  /// the planner's first choices, of those that the cache was found to hold when it was last listed, and of those that
  /// have been ready since. Where there is none, the cache is listed anew: others may have added to it.
  std::vector<RankedConfig> ranked(const Planner& planner, std::size_t limit, const Limits& limits);
  std::optional<RankedConfig> best(const Planner& planner, const Limits& limits);

 private:
  /// compiled_part() of configurations, and names of functions that were compiled for it; none: not known.
  using Kernels = std::map<std::string, std::pair<KernelConfig, std::set<std::string>>>;
  /// False if the cache holds what it was known to hold.
  bool list_cache();
  /// Without listing the cache.
  std::vector<RankedConfig> ranked_of_known(const Planner& planner, std::size_t limit, const Limits& limits);

  Backend& backend_;
  KernelStore& store_;
  KernelCache& cache_;
  ReadyTable& ready_table_;
  std::mutex mutex_;
  std::optional<Kernels> cached_;  // of the disk cache
};

}  // namespace jitgemm
