#include "measure/timing.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "backend/backend.hpp"
#include "measure/rounds.hpp"
#include "measure/sequence.hpp"

namespace jitgemm::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<Timing> time_on_host(const std::vector<TimedArm>& arms, int rounds) {
  std::vector<std::vector<double>> us(arms.size());
  Rounds order(arms.size());
  for (int round = 0; round < rounds; ++round)
    order.next([&](std::size_t arm) {
      const auto begin = Clock::now();
      arms[arm].launch(0);
      us[arm].push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    });
  std::vector<Timing> timings;
  for (const auto& values : us) timings.push_back(timing_of(values, 1));
  return timings;
}

/// Of a few launches, for how many fill a round.
double rough_us(Interval& interval, Stream stream, const Arm& arm, int sets) {
  for (int i = 0; i < 2; ++i) arm(0);
  interval.begin(stream);
  for (int i = 0; i < 3; ++i) arm(i % sets);
  interval.end(stream);
  return std::max(interval.us() / 3, 1.0);
}

constexpr double alike = 4;  // rough times of arms that have as many launches as each other

/// Of a sequence of each arm.
std::vector<int> launches_of(Backend& backend, Stream stream, const std::vector<TimedArm>& arms, int sets,
                             const TimingOptions& options) {
  int most = options.max_launches;
  // A call is up to three kernels with packed operands, or two and a memset of cuBLAS's, and a neighbour.
  if (options.eager) most = std::min(most, most_queued / 4);
  const auto count = [&](double us) {
    return int(std::clamp(options.round_ms * 1e3 / us, double(std::min(options.min_launches, most)), double(most)));
  };
  Interval interval(backend);
  std::vector<double> us;
  for (const TimedArm& arm : arms) us.push_back(rough_us(interval, stream, arm.launch, sets));
  const double neighbour_us = std::ranges::any_of(arms, &TimedArm::mixed)
                                  ? rough_us(
                                        interval, stream, [&](int) { options.neighbour(); }, 1)
                                  : 0;
  // What a replay costs besides its launches is shared by them, and some rough times are the host's: an arm with fewer
  // launches than another would pay for that.
  const double least_us = *std::ranges::min_element(us);
  std::vector<int> launches;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    const double its_us = us[i] < alike * least_us || arms[i].mixed ? least_us : us[i];
    launches.push_back(count(its_us + (arms[i].mixed ? neighbour_us : 0)));
  }
  return launches;
}

}  // namespace

std::vector<Timing> time_arms(Backend& backend, Stream stream, const std::vector<TimedArm>& arms, int sets,
                              const TimingOptions& options) {
  if (backend.device().emulated) return time_on_host(arms, options.rounds);

  const std::vector<int> launches = launches_of(backend, stream, arms, sets, options);
  std::vector<std::unique_ptr<Sequence>> sequences;
  const auto add = [&](const std::function<void()>& enqueue) {
    sequences.push_back(options.eager ? make_eager(backend, stream, *options.eager, enqueue)
                                      : make_replay(backend, stream, enqueue));
  };
  std::optional<std::size_t> mixed;  // one of them
  for (std::size_t i = 0; i < arms.size(); ++i) {
    if (arms[i].mixed) mixed = i;
    add([&arms, &launches, &options, sets, i] {
      for (int launch = 0; launch < launches[i]; ++launch) {
        if (arms[i].mixed) options.neighbour();
        arms[i].launch(launch % sets);
      }
    });
  }
  if (mixed) {
    add([&options, count = launches[*mixed]] {
      for (int launch = 0; launch < count; ++launch) options.neighbour();
    });
  }

  std::vector<MixedCount> counts;
  for (std::size_t i = 0; i < arms.size(); ++i) counts.push_back({launches[i], arms[i].mixed});
  return time_in_turn(sequences, counts, options.rounds, options.warm_up_ms);
}

std::vector<Timing> time_arms(Backend& backend, Stream stream, const std::vector<Arm>& arms, int sets,
                              const TimingOptions& options) {
  std::vector<TimedArm> timed;
  for (const Arm& arm : arms) timed.push_back({arm});
  return time_arms(backend, stream, timed, sets, options);
}

}  // namespace jitgemm::cli
