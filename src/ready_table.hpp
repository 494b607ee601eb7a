#pragma once

#include <atomic>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "core/kernel_config_hash.hpp"
#include "core/problem.hpp"
#include "jit/call.hpp"

namespace jitgemm {

/// What was asked for: shape_of() a problem with the alignments of its operands, and the caller's configuration, if
/// any, or the size of a workspace of the caller's that what would be chosen without it does not fit.
struct ReadyKey {
  NormalProblem shape;
  std::optional<KernelConfig> pinned = {};
  std::size_t workspace_bytes = SIZE_MAX;
  bool confined = false;  ///< on streams that cannot hold what others can
  bool operator==(const ReadyKey& other) const {
    return workspace_bytes == other.workspace_bytes && confined == other.confined && pinned == other.pinned &&
           equal(shape, other.shape);
  }
};

/// Remembers launches that are ready. Each thread has its last one at hand without a lock. Thread-safe.
class ReadyTable {
 public:
  bool find(const ReadyKey& key, Ready& ready);
  /// Adds nothing if clear() has come since `epoch`: then the choice may be an old one.
  void add(const ReadyKey& key, const Ready& ready, std::uint64_t epoch);
  void clear();
  std::vector<KernelConfig> configs();  ///< of its launches, each once
  std::uint64_t epoch() const { return epoch_; }

 private:
  struct Hash {
    std::size_t operator()(const ReadyKey& key) const {
      return hash_value(key.shape) ^ (key.pinned ? hash_value(*key.pinned) : 0) ^ ~key.workspace_bytes;
    }
  };
  /// Unique among all tables of the process, so that what a thread remembers of one that is gone fits no other.
  static std::uint64_t next_epoch();

  std::shared_mutex mutex_;
  std::unordered_map<ReadyKey, Ready, Hash> table_;
  std::atomic<std::uint64_t> epoch_ = next_epoch();
};

}  // namespace jitgemm
