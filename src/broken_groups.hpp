#pragma once

#include <array>
#include <atomic>
#include <mutex>

#include "backend/backend.hpp"

namespace jitgemm {

/// Words on the device that count the launches which found Operands::group_rows to go backwards or out of range, and
/// the tiles whose pointer to B was none, and say of which group the last was (templates/group_arguments.cuh). They are
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
  std::array<unsigned, 4> seen_{};  // of them, by check()
};

}  // namespace jitgemm
