#include "measure/timing.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>

#include "backend/backend.hpp"
#include "measure/launch_graph.hpp"

namespace jitgemm::cli {
namespace {

class Event {
 public:
  explicit Event(Backend& backend) : backend_(backend), event_(backend.create_event()) {}
  ~Event() { backend_.destroy_event(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream stream) { backend_.record_event(event_, stream); }
  double elapsed_us_since(const Event& begin) const { return backend_.elapsed_us(begin.event_, event_); }

 private:
  Backend& backend_;
  void* event_;
};

Timing timing_of(const std::vector<double>& us, int launches) {
  const double middle = median(us), p20 = quantile(us, 0.2), p80 = quantile(us, 0.8);
  return {.median_us = middle,
          .spread = middle > 0 ? (p80 - p20) / middle : 0,
          .p20_us = p20,
          .p80_us = p80,
          .launches = launches};
}

using Clock = std::chrono::steady_clock;

/// Visits every arm in each round, in an order drawn anew: whoever always came after the same arm would live with the
/// clocks that that one leaves behind.
class Rounds {
 public:
  explicit Rounds(std::size_t arms) : order_(arms) { std::iota(order_.begin(), order_.end(), std::size_t(0)); }

  template <typename Visit>
  void next(const Visit& visit) {
    std::shuffle(order_.begin(), order_.end(), random_);
    for (std::size_t arm : order_) visit(arm);
  }

 private:
  std::vector<std::size_t> order_;
  std::mt19937 random_{1};
};

std::vector<Timing> time_on_host(const std::vector<Arm>& arms, int rounds) {
  std::vector<std::vector<double>> us(arms.size());
  Rounds order(arms.size());
  for (int round = 0; round < rounds; ++round)
    order.next([&](std::size_t arm) {
      const auto begin = Clock::now();
      arms[arm](0);
      us[arm].push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    });
  std::vector<Timing> timings;
  for (const auto& values : us) timings.push_back(timing_of(values, 1));
  return timings;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const auto at = values.begin() + std::lround(part * double(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

std::vector<Timing> time_arms(Backend& backend, Stream stream, const std::vector<Arm>& arms, int sets,
                              const TimingOptions& options) {
  if (backend.device().emulated) return time_on_host(arms, options.rounds);

  Event begin(backend), end(backend);
  std::vector<LaunchGraph> graphs;
  std::vector<int> launches;
  for (const Arm& arm : arms) {
    for (int i = 0; i < 2; ++i) arm(0);
    begin.record(stream);
    for (int i = 0; i < 3; ++i) arm(i % sets);
    end.record(stream);
    const double us = std::max(end.elapsed_us_since(begin) / 3, 1.0);
    const int count =
        int(std::clamp(options.round_ms * 1e3 / us, double(options.min_launches), double(options.max_launches)));
    graphs.emplace_back(stream, [&] {
      for (int i = 0; i < count; ++i) arm(i % sets);
    });
    graphs.back().launch();
    launches.push_back(count);
  }

  std::vector<std::vector<double>> us(arms.size());
  const auto time_one = [&](std::size_t arm) {
    begin.record(stream);
    graphs[arm].launch();
    end.record(stream);
    us[arm].push_back(end.elapsed_us_since(begin) / launches[arm]);
  };
  Rounds order(arms.size());
  // Rounds that do not count, while the card is cool: kernels of 1 ms ran up to 13 % faster in the first one, and those
  // of 15 us lose up to 12 % in steps, after some 20 and 80 ms under load (tools/results/NOTES.md, 24 and 25).
  const auto warm = Clock::now() + std::chrono::duration<double, std::milli>(options.warm_up_ms);
  do {
    order.next(time_one);
  } while (Clock::now() < warm);
  for (std::vector<double>& values : us) values.clear();
  for (int round = 0; round < options.rounds; ++round) order.next(time_one);
  std::vector<Timing> timings;
  for (std::size_t i = 0; i < arms.size(); ++i) timings.push_back(timing_of(us[i], launches[i]));
  return timings;
}

}  // namespace jitgemm::cli
