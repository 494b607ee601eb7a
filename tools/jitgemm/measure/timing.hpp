#pragma once

#include <functional>
#include <vector>

#include "jitgemm/types.hpp"

namespace jitgemm {
class Backend;
}

namespace jitgemm::cli {

class HostLead;

/// One of the things that are timed against each other: enqueues one launch with this set of inputs.
using Arm = std::function<void(int set)>;

/// One that may have a neighbour between any two of its launches.
struct TimedArm {
  Arm launch;
  bool mixed = false;
};

struct Timing {
  double median_us = 0;
  double spread = 0;  ///< (p80 - p20) / median of the rounds
  double p20_us = 0, p80_us = 0;
  int launches = 0;  ///< of one round
};

struct TimingOptions {
  int rounds = 5;
  double round_ms = 2.5;  ///< of one arm
  int min_launches = 4;   ///< of one round
  int max_launches = 1000;
  double warm_up_ms = 0;                 ///< before the first round that counts; at least one does not
  std::function<void()> neighbour = {};  ///< enqueues the one that stands between the launches of mixed arms
  HostLead* eager = nullptr;             ///< launches are put on the stream behind it, few enough for its queue
};

/// Times arms in turn: each round replays one graph an arm, of as many launches as fill round_ms, in an order drawn
/// anew for each. Mixed arms have one number of launches, and as many of the neighbour alone are timed in the same
/// rounds: in each its time is taken off theirs. On the emulator: one launch a round by the wall clock.
std::vector<Timing> time_arms(Backend& backend, Stream stream, const std::vector<TimedArm>& arms, int sets,
                              const TimingOptions& options = {});
std::vector<Timing> time_arms(Backend& backend, Stream stream, const std::vector<Arm>& arms, int sets,
                              const TimingOptions& options = {});

}  // namespace jitgemm::cli
