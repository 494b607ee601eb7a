#include "parallel/calls_in_flight.hpp"

#include <thread>

namespace jitgemm {
namespace {

constexpr std::chrono::microseconds between_polls{50};

}  // namespace

OwnedEvent CallsInFlight::take_event() {
  if (unused_.empty()) return make_event(backend_);
  OwnedEvent event = std::move(unused_.back());
  unused_.pop_back();
  return event;
}

void CallsInFlight::keep_events(Mark& mark) {
  if (mark.begun) unused_.push_back(std::move(mark.begun));
  unused_.push_back(std::move(mark.ended));
}

void CallsInFlight::drop_passed() {
  while (!marks_.empty() && backend_.has_passed(marks_.front().ended.get())) {
    keep_events(marks_.front());
    marks_.pop_front();
  }
}

void CallsInFlight::before(Stream stream, bool watched) {
  const std::lock_guard lock(mutex_);
  if (backend_.capture_status(stream) == CaptureStatus::capturing) {
    if (captured_ != 0 && captured_ == backend_.capture_point(stream).capture)
      backend_.wait_event(of_capture_.get(), stream);
    return;
  }
  drop_passed();
  if (!marks_.empty()) backend_.wait_event(marks_.back().ended.get(), stream);
  next_ = {.begun = {}, .ended = take_event(), .found_begun = {}};
  if (!watched) return;
  next_.begun = take_event();
  backend_.record_event(next_.begun.get(), stream);
}

void CallsInFlight::after(Stream stream) {
  const std::lock_guard lock(mutex_);
  if (backend_.capture_status(stream) == CaptureStatus::capturing) {
    if (!of_capture_) of_capture_ = make_event(backend_);
    backend_.record_event(of_capture_.get(), stream);
    captured_ = backend_.capture_point(stream).capture;
    return;
  }
  backend_.record_event(next_.ended.get(), stream);
  if (marks_.size() == most_marks) {  // the last call has waited for that one
    keep_events(marks_.back());
    marks_.pop_back();
  }
  marks_.push_back(std::move(next_));
}

bool CallsInFlight::any_left() noexcept {
  try {
    const std::lock_guard lock(mutex_);
    drop_passed();
    return !marks_.empty();
  } catch (...) {  // the device has failed, and runs nothing
    return false;
  }
}

void CallsInFlight::wait(FunctionRef<void()> check) {
  while (any_left()) {
    check();
    std::this_thread::sleep_for(between_polls);
  }
}

bool CallsInFlight::overdue(double seconds) {
  const std::lock_guard lock(mutex_);
  drop_passed();
  if (marks_.empty() || !marks_.front().begun) return false;
  auto& [begun, ended, found_begun] = marks_.front();
  if (!found_begun && backend_.has_passed(begun.get())) found_begun = Clock::now();
  return found_begun && Clock::now() - *found_begun > std::chrono::duration<double>(seconds);
}

}  // namespace jitgemm
