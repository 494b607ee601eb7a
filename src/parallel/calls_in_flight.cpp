#include "parallel/calls_in_flight.hpp"

namespace jitgemm {

void CallsInFlight::drop_passed() {
  while (!marks_.empty() && backend_.has_passed(marks_.front().event.get())) {
    unused_.push_back(std::move(marks_.front().event));
    marks_.pop_front();
  }
}

void CallsInFlight::before(Stream stream) {
  const std::lock_guard lock(mutex_);
  if (backend_.capture_status(stream) == CaptureStatus::capturing) {
    if (captured_ != 0 && captured_ == backend_.capture_point(stream).capture)
      backend_.wait_event(of_capture_.get(), stream);
    return;
  }
  drop_passed();
  if (!marks_.empty()) backend_.wait_event(marks_.back().event.get(), stream);
}

void CallsInFlight::after(Stream stream) {
  const std::lock_guard lock(mutex_);
  if (backend_.capture_status(stream) == CaptureStatus::capturing) {
    if (!of_capture_) of_capture_ = make_event(backend_);
    backend_.record_event(of_capture_.get(), stream);
    captured_ = backend_.capture_point(stream).capture;
    return;
  }
  if (marks_.size() < most_marks) {
    if (unused_.empty()) unused_.push_back(make_event(backend_));
    marks_.push_back({std::move(unused_.back()), {}});
    unused_.pop_back();
  }
  marks_.back().enqueued = Clock::now();
  backend_.record_event(marks_.back().event.get(), stream);
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

bool CallsInFlight::overdue(double seconds) {
  const std::lock_guard lock(mutex_);
  drop_passed();
  return !marks_.empty() && Clock::now() - marks_.front().enqueued > std::chrono::duration<double>(seconds);
}

}  // namespace jitgemm
