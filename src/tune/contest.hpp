#pragma once

#include <cstddef>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tune/measurement.hpp"

namespace jitgemm {

// Of a tuning budget: for making candidates ready, then what there is is measured; for that; and of that, at most, for
// the clocks. With all kernels cached, making them ready takes less than a fifth.
inline constexpr double admission_share = 0.6, measuring_share = 0.8, warm_up_share = 0.3;

/// Rounds over the candidates that are at most `within` times as slow as the best so far.
struct Stage {
  int rounds;
  double within;
};

/// By how much one has to be ahead of another, as a fraction, whatever the noise. Of a few rounds the quartiles say too
/// little: of 20 equals some would be ahead by chance.
struct LeastLead {
  double usually;
  double of_few = 0.02;
  std::size_t few = 4;  ///< fewer rounds than that
};

/// A candidate is out once the leader, with so many rounds, is ahead of it by so many times the noise.
struct EarlyEnd {
  double times_noise;
  std::size_t rounds;
};

/// Who a model expects to win once the first candidate is dropped.
enum class Heir { next, nobody };

/// Candidates timed by turns: who is ahead, who has a turn next, and who wins. Has neither a clock nor a device. Two
/// are compared by the ratios of their times of the same rounds. The first of the candidates, which a model expects to
/// win, is in every stage, and wins unless another is ahead of it.
class Contest {
 public:
  /// Candidates by their numbers, in order. `stages` outlives this. Who is in a stage is decided as it begins and, with
  /// `early`, by that; without it, anew in each round.
  Contest(std::vector<std::size_t> candidates, std::span<const Stage> stages, LeastLead least, Heir heir,
          std::optional<EarlyEnd> early = {});

  /// Who has a turn in the next round, in an order drawn for it, but for the first round's, so that a drift of the
  /// clocks and what a neighbour does to them are everyone's. Empty: it is over.
  std::vector<std::size_t> next_round();
  int round() const { return round_; }  ///< that next_round() gave last, from 1 on
  void add(std::size_t who, int round, double us) { times_[who].add(round, us); }
  void drop(std::size_t who);  ///< that cannot be measured after all

  const std::vector<std::size_t>& candidates() const { return candidates_; }  ///< that are not dropped
  const RoundTimes& times(std::size_t who) const { return times_[who]; }
  /// How many times as long as y it takes.
  Statistics over(std::size_t x, std::size_t y) const { return summarise(times_[x].over(times_[y])); }
  bool is_ahead(std::size_t x, std::size_t y, double times_noise = 1) const;
  int measured() const;  ///< candidates

  struct Result {
    std::size_t winner;
    bool kept_first;  ///< though another was the fastest
    Statistics its;
  };
  /// nullopt: none is measured.
  std::optional<Result> result() const;

 private:
  bool is_measured(std::size_t who) const { return times_[who].size() > 0; }
  bool is_first(std::size_t who) const { return first_ == who; }
  std::optional<std::size_t> best() const;
  std::vector<std::size_t> within(double factor) const;
  bool is_out(std::size_t who, std::size_t leader) const;

  std::vector<std::size_t> candidates_, in_stage_;
  std::vector<RoundTimes> times_;  // by number
  const std::span<const Stage> stages_;
  const LeastLead least_;
  const Heir heir_;
  const std::optional<EarlyEnd> early_;
  std::optional<std::size_t> first_;
  std::size_t stage_ = 0;
  int round_ = 0, rounds_of_stage_ = 0;
  std::mt19937 random_{1};
};

/// In words: the fastest of what `among` says, or the model's first choice that no other beat by more than the noise.
std::string why_chosen(bool kept_first, const std::string& among);

}  // namespace jitgemm
