#pragma once

#include <atomic>
#include <memory>

#include "backend/backend.hpp"

namespace jitgemm {

/// TMA descriptors by what they describe. One place for each hash, so the size is bound; nobody waits: whoever finds a
/// place in use, or another descriptor there, encodes. Thread-safe.
class TensorMapCache {
 public:
  explicit TensorMapCache(Backend& backend) : backend_(backend), slots_(new Slot[slot_count]) {}

  device::TensorMap get(const TensorMapSpec& spec);

 private:
  struct Slot {
    std::atomic<bool> busy = false;
    TensorMapSpec spec;  // address nullptr: none yet
    device::TensorMap map;
  };
  static constexpr std::size_t slot_count = 1024;

  Backend& backend_;
  std::unique_ptr<Slot[]> slots_;
};

}  // namespace jitgemm
