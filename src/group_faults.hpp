#pragma once

#include <atomic>
#include <mutex>

#include "backend/backend.hpp"
#include "core/kernel_interface.hpp"

namespace jitgemm {

/// What kernels of groups have found wrong, counted on the device (templates/group_arguments.cuh). It is there from the
/// first call with groups on, as long as the Context, so that graphs may count in it. Thread-safe.
class GroupFaultCounts {
 public:
  explicit GroupFaultCounts(Backend& backend) : backend_(backend) {}
  ~GroupFaultCounts() {
    if (counts_) backend_.release(counts_);
  }
  GroupFaultCounts(const GroupFaultCounts&) = delete;
  GroupFaultCounts& operator=(const GroupFaultCounts&) = delete;

  /// Where to count.
  device::GroupFaults* on_device();
  /// Waits for the stream. Throws Error{invalid_operand} if something has been counted since it was last seen.
  void check(Stream stream);

 private:
  Backend& backend_;
  std::mutex mutex_;
  std::atomic<device::GroupFaults*> counts_ = nullptr;
  device::GroupFaults seen_{};  // by check()
};

}  // namespace jitgemm
