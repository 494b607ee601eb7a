#include "ready_table.hpp"

#include <algorithm>
#include <mutex>

namespace jitgemm {
namespace {

constexpr std::size_t most_entries = 1 << 16;  // then all are made anew, from choices and kernels that are remembered

}  // namespace

bool ReadyTable::find(const ReadyKey& key, Ready& ready) {
  thread_local struct {
    std::uint64_t epoch = 0;
    ReadyKey key;
    Ready ready;
  } last;
  if (last.epoch != epoch_.load(std::memory_order_acquire) || !(last.key == key)) {
    const std::shared_lock lock(mutex_);
    const auto found = table_.find(key);
    if (found == table_.end()) return false;
    last.key = key;
    last.ready = found->second;
    last.epoch = epoch_.load(std::memory_order_relaxed);  // changes only under the lock
  }
  ready = last.ready;
  return true;
}

void ReadyTable::add(const ReadyKey& key, const Ready& ready, std::uint64_t epoch) {
  const std::unique_lock lock(mutex_);
  if (epoch_ != epoch) return;
  if (table_.size() >= most_entries) table_.clear();
  table_.insert_or_assign(key, ready);
}

void ReadyTable::clear() {
  const std::unique_lock lock(mutex_);
  table_.clear();
  epoch_ = next_epoch();
}

std::vector<KernelConfig> ReadyTable::configs() {
  const std::shared_lock lock(mutex_);
  std::vector<KernelConfig> configs;
  for (const auto& [key, ready] : table_) {
    if (std::find(configs.begin(), configs.end(), ready.config) == configs.end()) configs.push_back(ready.config);
  }
  return configs;
}

std::uint64_t ReadyTable::next_epoch() {
  static std::atomic<std::uint64_t> count = 0;
  return ++count;
}

}  // namespace jitgemm
