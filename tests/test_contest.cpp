// Who wins among candidates that are timed by turns, and who has how many turns. The tuners' clocks and devices:
// tests/test_tuning_choice.cpp, tests/test_rank_tuning.cpp.
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "catch.hpp"
#include "tune/contest.hpp"

using namespace jitgemm;

namespace {

constexpr LeastLead least{.usually = 0.01};

/// Turns of each, by number, with these times in every round.
std::vector<int> turns_of(Contest& contest, const std::vector<double>& us) {
  std::vector<int> turns(us.size());
  for (auto round = contest.next_round(); !round.empty(); round = contest.next_round()) {
    for (const std::size_t who : round) {
      contest.add(who, contest.round(), us[who]);
      ++turns[who];
    }
  }
  return turns;
}

std::size_t winner_of(int rounds, const std::vector<double>& us) {
  const std::array stages{Stage{rounds, HUGE_VAL}};
  std::vector<std::size_t> all;
  for (std::size_t who = 0; who < us.size(); ++who) all.push_back(who);
  Contest contest(all, stages, least, Heir::next);
  turns_of(contest, us);
  const auto result = contest.result();
  REQUIRE(result);
  CHECK(result->kept_first == (result->winner == 0 && us[1] < us[0]));
  CHECK(result->its.median == us[result->winner]);
  return result->winner;
}

}  // namespace

TEST_CASE("A lead of a few rounds has to be larger", "[contest]") {
  for (const int rounds : {1, 3}) {
    CHECK(winner_of(rounds, {10, 9.85}) == 0);
    CHECK(winner_of(rounds, {10, 9.7}) == 1);
  }
  CHECK(winner_of(4, {10, 9.85}) == 1);
  CHECK(winner_of(4, {10, 9.95}) == 0);
}

TEST_CASE("Stages are for those near the best, and for the first", "[contest]") {
  const std::array stages{Stage{2, HUGE_VAL}, Stage{3, 1.2}, Stage{5, 1.05}};
  Contest contest({0, 1, 3, 4}, stages, least, Heir::next);
  CHECK(turns_of(contest, {20, 10, 0, 11, 15}) == std::vector<int>{10, 10, 0, 5, 2});
  CHECK(contest.measured() == 4);
  CHECK(contest.result()->winner == 1);
}

TEST_CASE("A contest ends early for those that are out", "[contest]") {
  const std::array stages{Stage{20, HUGE_VAL}};
  Contest contest({0, 1, 2}, stages, least, Heir::next, EarlyEnd{.times_noise = 2.5, .rounds = 8});
  CHECK(turns_of(contest, {10, 10.05, 20}) == std::vector<int>{20, 20, 8});
  Contest clear({0, 1, 2}, stages, least, Heir::next, EarlyEnd{.times_noise = 2.5, .rounds = 8});
  CHECK(turns_of(clear, {10, 30, 20}) == std::vector<int>{8, 8, 8});
}

TEST_CASE("Who is dropped has no turn, and neither leads nor wins", "[contest]") {
  const std::array stages{Stage{2, HUGE_VAL}};
  Contest contest({0, 1, 2}, stages, least, Heir::next);
  for (const std::size_t who : contest.next_round()) contest.add(who, contest.round(), 10 - double(who));
  contest.drop(0);
  contest.drop(2);
  CHECK(contest.next_round().empty());  // with whom?
  CHECK(contest.measured() == 1);
  CHECK(contest.result()->winner == 1);
  CHECK_FALSE(contest.result()->kept_first);
  contest.drop(1);
  CHECK_FALSE(contest.result());
}

TEST_CASE("A dropped first choice leaves what it had to the next one, or to nobody", "[contest]") {
  const std::array stages{Stage{4, HUGE_VAL}};
  for (const Heir heir : {Heir::next, Heir::nobody}) {
    Contest contest({0, 1, 2}, stages, least, heir);
    for (const std::size_t who : contest.next_round()) contest.add(who, contest.round(), who == 2 ? 9.95 : 10);
    contest.drop(0);
    turns_of(contest, {10, 10, 9.95});
    CHECK(contest.result()->winner == (heir == Heir::next ? 1 : 2));
    CHECK(contest.result()->kept_first == (heir == Heir::next));
  }
}

TEST_CASE("Without an early end, who falls back leaves a stage that has begun", "[contest]") {
  const std::array stages{Stage{6, 1.05}};
  Contest contest({0, 1}, stages, least, Heir::nobody);
  int turns = 0;
  for (auto round = contest.next_round(); !round.empty(); round = contest.next_round()) {
    for (const std::size_t who : round) contest.add(who, contest.round(), who == 1 && contest.round() > 1 ? 13 : 10);
    turns += int(round.size());
  }
  CHECK(turns < 8);
  CHECK(contest.result()->winner == 0);
}
