#pragma once

#include <vector>

#include "backend/backend.hpp"
#include "util/function_ref.hpp"

namespace jitgemm {

/// Until a device that has idled has the clocks of one under load. What draws much power loses up to 12 % in steps, on
/// an H200 after some 20, 80 and 400 ms, and not every configuration as much (tools/results/NOTES.md, 25).
inline constexpr double warm_up_ms = 100;

struct Statistics {
  double median = 0;
  double spread = 0;  ///< (p90 - p10) / median
  double noise = 0;   ///< how far the median may be off, as a fraction: two standard errors, by the quartiles
};
Statistics summarise(std::vector<double> samples);

/// What one of several kernels took, at most once a round in which they were timed by turns.
class RoundTimes {
 public:
  /// Rounds come in ascending order.
  void add(int round, double us) { times_.push_back({round, us}); }
  std::size_t size() const { return times_.size(); }
  std::vector<double> us() const;
  /// Its times over the other's, of each round that both were timed in: steps and drifts of the clocks, which last for
  /// rounds, fall out.
  std::vector<double> over(const RoundTimes& other) const;

 private:
  struct Time {
    int round;
    double us;
  };
  std::vector<Time> times_;
};

/// A stream and two events of its own.
class LaunchTimer {
 public:
  explicit LaunchTimer(Backend& backend);
  ~LaunchTimer();
  LaunchTimer(const LaunchTimer&) = delete;
  LaunchTimer& operator=(const LaunchTimer&) = delete;

  Stream stream() const { return stream_; }

  /// Microseconds on the device of what `enqueue` puts on the stream.
  double time_us(FunctionRef<void()> enqueue);
  /// The same behind what `lead` puts there, which is asked for more, 0, 1, 2 and 4, until the device is still at it
  /// when the host is done: else the host's time is in it, which is much where others keep the CPUs busy. Where the
  /// host does not get ahead, the least of these.
  double time_us_behind(FunctionRef<void(int more)> lead, FunctionRef<void()> enqueue);
  /// The same without the wait: that is_over() says has ended, and us() then how long it took.
  void time(FunctionRef<void()> enqueue);
  bool is_over() const { return backend_.has_passed(end_); }
  double us() const { return backend_.elapsed_us(begin_, end_); }

 private:
  Backend& backend_;
  Stream stream_ = nullptr;
  void* begin_ = nullptr;
  void* end_ = nullptr;
  void release() noexcept;
};

}  // namespace jitgemm
