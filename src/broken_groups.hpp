#pragma once

#include <atomic>
#include <mutex>

#include "backend/backend.hpp"

namespace jitgemm {

/// A word on the device that counts launches which found Operands::group_rows to go backwards or out of range. It is
/// there from the first call with groups on, as long as the Context, so that graphs may count in it. Thread-safe.
class BrokenGroups {
 public:
  explicit BrokenGroups(Backend& backend) : backend_(backend) {}
  ~BrokenGroups() {
    if (count_) backend_.release(count_);
  }
  BrokenGroups(const BrokenGroups&) = delete;
  BrokenGroups& operator=(const BrokenGroups&) = delete;

  /// Where to count.
  unsigned* count();
  /// Waits for the stream. Throws Error{invalid_operand} if something has been counted since it was last seen.
  void check(Stream stream);

 private:
  Backend& backend_;
  std::mutex mutex_;
  std::atomic<unsigned*> count_ = nullptr;
  unsigned seen_ = 0;  // of it, by check()
};

}  // namespace jitgemm
