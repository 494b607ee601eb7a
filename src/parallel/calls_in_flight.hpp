#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "backend/backend.hpp"
#include "parallel/owned_handles.hpp"

namespace jitgemm {

/// Puts the calls of one TensorParallel, whichever streams they are given, one after the other on the device, so that
/// they may share memory, and knows for how long they have been there. For one call at a time; overdue() is
/// thread-safe. Captured calls follow each other within their capture alone.
class CallsInFlight {
 public:
  explicit CallsInFlight(Backend& backend) : backend_(backend) {}

  /// What the stream is given from here on waits for the calls before.
  void before(Stream stream);
  /// Ends the call that before() began.
  void after(Stream stream);
  /// Whether a call has not ended for so long since it was enqueued. Waits for nothing.
  bool overdue(double seconds);
  bool any_left() noexcept;  ///< on the device
  bool any_captured() const { return captured_ != 0; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    OwnedEvent event;
    Clock::time_point enqueued;
  };
  static constexpr std::size_t most_marks = 64;

  void drop_passed();

  Backend& backend_;
  std::mutex mutex_;
  std::deque<Mark> marks_;  // oldest first
  std::vector<OwnedEvent> unused_;
  OwnedEvent of_capture_{nullptr, {nullptr}};
  std::uint64_t captured_ = 0;  // the capture that of_capture_ was recorded in last
};

}  // namespace jitgemm
