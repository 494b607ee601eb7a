#include "measure/rounds.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace jitgemm::cli {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Rounds::Rounds(std::size_t arms) : order_(arms) { std::iota(order_.begin(), order_.end(), std::size_t(0)); }

Timing timing_of(const std::vector<double>& us, int launches) {
  const double middle = median(us), p20 = quantile(us, 0.2), p80 = quantile(us, 0.8);
  return {.median_us = middle,
          .spread = middle > 0 ? (p80 - p20) / middle : 0,
          .p20_us = p20,
          .p80_us = p80,
          .launches = launches};
}

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

std::vector<Timing> time_in_turn(const std::vector<std::unique_ptr<Sequence>>& sequences,
                                 const std::vector<MixedCount>& counts, int rounds, double warm_up_ms) {
  std::vector<std::vector<double>> us(sequences.size());
  const auto time_one = [&](std::size_t i) { us[i].push_back(sequences[i]->time_us()); };
  Rounds order(sequences.size());
  // Rounds that do not count, while the card is cool: kernels of 1 ms ran up to 13 % faster in the first one, and those
  // of 15 us lose up to 12 % in steps, after some 20 and 80 ms under load (tools/results/NOTES.md, 24 and 25).
  const auto warm = Clock::now() + std::chrono::duration<double, std::milli>(warm_up_ms);
  do {
    order.next(time_one);
  } while (Clock::now() < warm);
  for (std::vector<double>& values : us) values.clear();
  for (int round = 0; round < rounds; ++round) order.next(time_one);
  std::vector<Timing> timings;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    for (std::size_t round = 0; round < us[i].size(); ++round)
      us[i][round] = (us[i][round] - (counts[i].mixed ? us.back()[round] : 0)) / counts[i].launches;
    timings.push_back(timing_of(us[i], counts[i].launches));
  }
  return timings;
}

}  // namespace jitgemm::cli
