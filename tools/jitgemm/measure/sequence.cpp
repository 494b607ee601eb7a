#include "measure/sequence.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "backend/backend.hpp"
#include "jitgemm/error.hpp"
#include "measure/host_lead.hpp"
#include "measure/launch_graph.hpp"

namespace jitgemm::cli {
namespace {

using Clock = std::chrono::steady_clock;

class Replay : public Sequence {
 public:
  Replay(Backend& backend, Stream stream, const std::function<void()>& enqueue)
      : interval_(backend), stream_(stream), graph_(stream, enqueue) {
    graph_.launch();
  }
  /// Behind a replay that does not count, unless this one is long: the host takes tens of microseconds to launch a
  /// graph, and the device as much for one that it did not run last.
  double time_us() override {
    if (last_us_ < long_us) graph_.launch();
    interval_.begin(stream_);
    graph_.launch();
    interval_.end(stream_);
    return last_us_ = interval_.us();
  }

 private:
  static constexpr double long_us = 1500;

  Interval interval_;
  Stream stream_;
  LaunchGraph graph_;
  double last_us_ = 0;
};

class Eager : public Sequence {
 public:
  Eager(Backend& backend, Stream stream, HostLead& lead, std::function<void()> enqueue)
      : interval_(backend), stream_(stream), lead_(lead), enqueue_(std::move(enqueue)) {}

  double time_us() override {
    constexpr int most_tries = 8;
    for (int i = 0; i < most_tries; ++i) {
      lead_.spin(spin_us_, stream_);
      interval_.begin(stream_);
      const auto start = Clock::now();
      enqueue_();
      interval_.end(stream_);
      const bool ahead = !interval_.begun();  // the device still spins
      const double host_us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
      const double us = interval_.us();
      if (ahead) return us;
      spin_us_ = std::min(std::max(2 * spin_us_, 1.5 * host_us), longest_spin_us);
    }
    throw Error(
        ErrorCode::launch_failed,
        fmt::format("the host is slower than the device, which has waited for {:.0f} us: quieten the machine, or "
                    "leave --eager out",
                    spin_us_));
  }

 private:
  static constexpr double longest_spin_us = 100e3;

  Interval interval_;
  Stream stream_;
  HostLead& lead_;
  std::function<void()> enqueue_;
  double spin_us_ = 500;
};

}  // namespace

Interval::Interval(Backend& backend) : backend_(backend), begin_(backend.create_event()) {
  try {
    end_ = backend.create_event();
  } catch (...) {
    backend.destroy_event(begin_);
    throw;
  }
}

Interval::~Interval() {
  backend_.destroy_event(begin_);
  backend_.destroy_event(end_);
}

void Interval::begin(Stream stream) { backend_.record_event(begin_, stream); }
void Interval::end(Stream stream) { backend_.record_event(end_, stream); }
bool Interval::begun() const { return event_passed(begin_); }
double Interval::us() const { return backend_.elapsed_us(begin_, end_); }

std::unique_ptr<Sequence> make_replay(Backend& backend, Stream stream, const std::function<void()>& enqueue) {
  return std::make_unique<Replay>(backend, stream, enqueue);
}

std::unique_ptr<Sequence> make_eager(Backend& backend, Stream stream, HostLead& lead, std::function<void()> enqueue) {
  return std::make_unique<Eager>(backend, stream, lead, std::move(enqueue));
}

}  // namespace jitgemm::cli
