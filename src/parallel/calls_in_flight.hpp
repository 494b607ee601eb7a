#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "backend/backend.hpp"
#include "parallel/owned_handles.hpp"
#include "util/function_ref.hpp"

namespace jitgemm {

/// Puts the calls of one TensorParallel, whichever streams they are given, one after the other on the device, so that
/// they may share memory, and knows for how long the device has been at one. For one call at a time; overdue() is
/// thread-safe. Captured calls follow each other within their capture alone.
class CallsInFlight {
 public:
  explicit CallsInFlight(Backend& backend) : backend_(backend) {}

  /// What the stream is given from here on waits for the calls before. `watched`: overdue() looks at this call.
  void before(Stream stream, bool watched);
  /// Ends the call that before() began.
  void after(Stream stream);
  /// Whether a watched call has not ended for so long since the device was found at it, behind all that its stream had
  /// before: which is found here alone. Waits for nothing.
  bool overdue(double seconds);
  bool any_left() noexcept;  ///< on the device
  /// Until none is left, or `check`, which is asked meanwhile, throws.
  void wait(FunctionRef<void()> check);
  bool any_captured() const { return captured_ != 0; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    OwnedEvent begun;  // of a watched call
    OwnedEvent ended;
    std::optional<Clock::time_point> found_begun;
  };
  static constexpr std::size_t most_marks = 64;

  OwnedEvent take_event();
  void keep_events(Mark& mark);
  void drop_passed();

  Backend& backend_;
  std::mutex mutex_;
  std::deque<Mark> marks_;  // oldest first
  Mark next_;               // between before() and after()
  std::vector<OwnedEvent> unused_;
  OwnedEvent of_capture_;
  std::uint64_t captured_ = 0;  // the capture that of_capture_ was recorded in last
};

}  // namespace jitgemm
