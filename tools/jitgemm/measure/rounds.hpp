#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <random>
#include <vector>

#include "measure/sequence.hpp"
#include "measure/timing.hpp"

namespace jitgemm::cli {

/// Visits every arm in each round, in an order drawn anew: whoever always came after the same arm would live with the
/// clocks that that one leaves behind.
class Rounds {
 public:
  explicit Rounds(std::size_t arms);

  template <typename Visit>
  void next(const Visit& visit) {
    std::shuffle(order_.begin(), order_.end(), random_);
    for (std::size_t arm : order_) visit(arm);
  }

 private:
  std::vector<std::size_t> order_;
  std::mt19937 random_{1};
};

/// What a sequence is of.
struct MixedCount {
  int launches = 0;
  bool mixed = false;  ///< with as many of the neighbour
};

/// A sequence each of `counts`, in turn; the one more that there is, if any is mixed, is of the neighbour alone, whose
/// time in a round is taken off those of the mixed ones.
std::vector<Timing> time_in_turn(const std::vector<std::unique_ptr<Sequence>>& sequences,
                                 const std::vector<MixedCount>& counts, int rounds, double warm_up_ms);

double median(std::vector<double> values);
/// The value below which this part of the values lies, of those that there are.
double quantile(std::vector<double> values, double part);

/// Of a time each round.
Timing timing_of(const std::vector<double>& us, int launches);

}  // namespace jitgemm::cli
