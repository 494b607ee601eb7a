// Sends and waits of the kernel that adds up in one shot, in every order of its threads and ranks.
#include "catch.hpp"
#include "one_shot_checker.hpp"
#include "random.hpp"

using namespace jitgemm::test;

namespace {

std::string broken_rule(OneShotMistake mistake, const OneShotCalls& calls) {
  return OneShotChecker(mistake).broken_in_every_order(calls);
}

}  // namespace

TEST_CASE("Few calls in one shot are right in every order", "[schedule][parallel][one_shot]") {
  OneShotChecker checker;
  const std::vector<OneShotCalls> all = {
      {.ranks = 1, .threads = 2, .items = {1, 3, 2}},
      {.ranks = 2, .threads = 3, .items = {3, 3, 2, 4, 3}},
      {.ranks = 2, .threads = 2, .items = {4, 7, 1, 5}, .buffer_words = 32},
      {.ranks = 3, .threads = 1, .items = {2, 3, 1, 2}, .buffer_words = 32},
      {.ranks = 3, .threads = 2, .items = {2, 1, 2}, .buffer_words = 32},
      {.ranks = 4, .threads = 1, .items = {1, 2, 1}, .buffer_words = 32},
      {.ranks = 2, .threads = 1, .items = {2, 1, 2, 1}, .epoch = 0xFFFF'FFFDu},  // passes the largest number
  };
  for (const OneShotCalls& calls : all) {
    CAPTURE(calls.ranks, calls.threads, calls.items, calls.epoch);
    REQUIRE(checker.broken_in_every_order(calls) == "");
  }
  CHECK(checker.states() > 50'000);
}

TEST_CASE("Calls of up to eight ranks in one shot are right in random orders", "[schedule][parallel][one_shot]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  OneShotChecker checker;
  for (int ranks = 1; ranks <= jitgemm::device::most_ranks; ++ranks)
    for (int i = 0; i < 300; ++i) {
      OneShotCalls calls{.ranks = ranks, .threads = random.between(1, 4), .items = {}, .buffer_words = 8 * 4 * 3};
      for (int call = random.between(1, 12); call > 0; --call) calls.items.push_back(random.between(1, 12));
      if (random.between(0, 2) == 0) calls.epoch = 0u - unsigned(random.between(1, 8));
      CAPTURE(calls.ranks, calls.threads, calls.items, calls.epoch);
      REQUIRE(checker.broken_in_one_order(calls, unsigned(random.between(1, 1'000'000))) == "");
    }
}

TEST_CASE("What is wrong with an exchange in one shot is found", "[schedule][parallel][one_shot]") {
  const OneShotCalls calls{.ranks = 2, .threads = 2, .items = {2, 2, 2}};
  CHECK(broken_rule(OneShotMistake::one_buffer, calls) == "no word is written over that is still to be taken");
  CHECK(broken_rule(OneShotMistake::overtakes, {.ranks = 2, .threads = 2, .items = {2, 2, 3}}) ==
        "no word is written over that is still to be taken");
  CHECK(broken_rule(OneShotMistake::waits_before_it_sends, calls) == "every wait ends");
  CHECK(broken_rule(OneShotMistake::parts_overlap, {.ranks = 3, .items = {1, 1}}) ==
        "a word that is taken is what was asked for, and taken once");
  CHECK(broken_rule(OneShotMistake::asks_for_any_call, calls) ==
        "a word that is taken is what was asked for, and taken once");
}
