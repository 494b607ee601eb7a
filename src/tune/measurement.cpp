#include "tune/measurement.hpp"

#include <algorithm>
#include <cmath>

namespace jitgemm {

Statistics summarise(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto quantile = [&samples](double q) {
    const double place = q * double(samples.size() - 1);
    const auto below = std::size_t(place), above = std::min(below + 1, samples.size() - 1);
    return samples[below] + (place - double(below)) * (samples[above] - samples[below]);
  };
  const double median = quantile(0.5);
  if (!(median > 0)) return {median, 0, 0};
  // A median of n samples has a standard error of 1.25 sigma / sqrt(n), and the quartiles are 1.35 sigma apart. Unlike
  // p10 and p90 they bear a few hiccups.
  const double noise = 2 * 1.25 / 1.35 * (quantile(0.75) - quantile(0.25)) / std::sqrt(double(samples.size()));
  return {median, (quantile(0.9) - quantile(0.1)) / median, noise / median};
}

std::vector<double> RoundTimes::us() const {
  std::vector<double> us;
  for (const Time& time : times_) us.push_back(time.us);
  return us;
}

std::vector<double> RoundTimes::over(const RoundTimes& other) const {
  std::vector<double> ratios;
  auto theirs = other.times_.begin();
  for (const Time& mine : times_) {
    while (theirs != other.times_.end() && theirs->round < mine.round) ++theirs;
    if (theirs == other.times_.end()) break;
    if (theirs->round == mine.round && theirs->us > 0) ratios.push_back(mine.us / theirs->us);
  }
  return ratios;
}

LaunchTimer::LaunchTimer(Backend& backend) : backend_(backend) {
  try {
    stream_ = backend.create_stream();
    begin_ = backend.create_event();
    end_ = backend.create_event();
  } catch (...) {
    release();
    throw;
  }
}

LaunchTimer::~LaunchTimer() { release(); }

void LaunchTimer::release() noexcept {
  if (end_) backend_.destroy_event(end_);
  if (begin_) backend_.destroy_event(begin_);
  if (stream_) backend_.destroy_stream(stream_);
}

void LaunchTimer::time(FunctionRef<void()> enqueue) {
  backend_.record_event(begin_, stream_);
  enqueue();
  backend_.record_event(end_, stream_);
}

double LaunchTimer::time_us(FunctionRef<void()> enqueue) {
  time(enqueue);
  return us();
}

double LaunchTimer::time_us_behind(FunctionRef<void(int more)> lead, FunctionRef<void()> enqueue) {
  double least_us = HUGE_VAL;
  for (const int more : {0, 1, 2, 4}) {
    lead(more);
    time(enqueue);
    const bool host_is_ahead = !backend_.has_passed(begin_);
    const double its_us = us();
    if (host_is_ahead) return its_us;
    least_us = std::min(least_us, its_us);
  }
  return least_us;
}

}  // namespace jitgemm
