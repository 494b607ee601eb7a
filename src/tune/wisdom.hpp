#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "jit/kernel_cache.hpp"
#include "tune/wisdom_file.hpp"

namespace jitgemm {

/// What of a machine's wisdom is wanted; empty: all.
struct StoredSelection {
  std::string architecture = {};  ///< "sm_90a": of GPUs alone, not emulated ones
  /// With this, of the kernels only those that the records use.
  std::function<bool(const TuningRecord& record)> record = {};
  bool kernels = true;
};

/// Of these records and of both layers of the cache, the own before the system's. Kernels that are damaged, or the
/// emulator's, are left out.
StoredWisdom collect_wisdom(std::vector<TuningRecord> records, KernelCache& cache, const StoredSelection& selection);

/// A kernel is code: whoever wrote the file says what runs on the GPU. So they are taken only from whom one trusts as
/// one trusts the author of a program. Records are data, whose configurations are checked before use.
enum class Kernels : bool { leave, take };

struct TakenWisdom {
  std::size_t records = 0, kernels = 0;  ///< those that were not here, or not as good
};
/// Adds what is new, see TuningDb::merge() and KernelCache::add(). Throws Error{io} for what cannot be stored, after
/// what came before it has been; it can then be called again.
TakenWisdom take_wisdom(const std::vector<StoredWisdom>& all, TuningDb& db, KernelCache& cache, Kernels kernels);

/// Of equal records the one that replaces() the others, of equal kernels the first.
StoredWisdom merge_stored(const std::vector<StoredWisdom>& all);

struct StoredDiff {
  std::vector<TuningRecord> only_a, only_b;
  std::vector<std::pair<TuningRecord, TuningRecord>> differ;  ///< in their configuration
  std::size_t same = 0;
  std::size_t kernels_only_a = 0, kernels_only_b = 0, kernels_same = 0;
  bool equal() const { return only_a.empty() && only_b.empty() && differ.empty(); }
};
StoredDiff diff_stored(const StoredWisdom& a, const StoredWisdom& b);

}  // namespace jitgemm
