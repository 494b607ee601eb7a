// The order of tiles and the flags of products that a node's ranks compute together.
#include "catch.hpp"
#include "random.hpp"
#include "shard_checker.hpp"

using namespace jitgemm::device;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

ShardedLaunch launch_of(Sharding sharding, int ranks, int tiles_m, int tiles_n, int ctas, int k_blocks,
                        int group_m = 0) {
  ShardedLaunch launch;
  launch.sharding = sharding;
  launch.ranks = ranks;
  launch.group_m = group_m;
  launch.decomposition = {tiles_m, tiles_n, ranks, k_blocks, std::min(ctas, tiles_m * tiles_n * ranks), 0, 1, group_m};
  return launch;
}

/// Mostly a few tiles and thread blocks.
ShardedLaunch drawn_launch(Random& random, int ranks) {
  const Sharding sharding = random.between(0, 2) == 0 ? Sharding::gathered_a : Sharding::scattered_d;
  ShardedLaunch launch =
      launch_of(sharding, ranks, random.log_between(1, 7), random.log_between(1, 7), random.log_between(1, 40),
                random.log_between(1, 7), std::max(0, random.between(-3, 8)));
  if (random.between(0, 3) == 0) {
    launch.cluster_m = random.between(1, 2);
    launch.cluster_n = random.between(1, 2);
  }
  launch.consumers = random.between(1, 3);
  launch.ping_pong = launch.consumers == 2 && random.between(0, 1) == 0;
  launch.stages = random.between(2, 5);
  if (sharding == Sharding::gathered_a && random.between(0, 1) == 0)  // waits for copies need no CTA to be resident
    launch.resident = random.between(1, launch.decomposition.ctas);
  return launch;
}

std::string broken_rule(ShardChecker& checker, const ShardedLaunch& launch) {
  std::string broken = checker.broken_order(launch);
  return broken.empty() ? checker.broken_progress(launch) : broken;
}

ShardedLaunch scattered(int ranks, int consumers = 2, bool ping_pong = false) {
  ShardedLaunch launch = launch_of(Sharding::scattered_d, ranks, 6, 2, 5, 2);
  launch.consumers = consumers;
  launch.ping_pong = ping_pong;
  return launch;
}

}  // namespace

TEST_CASE("Ranks compute every tile once, signal and await every flag once, and no wait is for ever",
          "[schedule][parallel]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  ShardChecker checker;
  const int launches = 15'000;  // of each number of ranks
  for (int ranks = 1; ranks <= most_ranks; ++ranks)
    for (int i = 0; i < launches; ++i) {
      const ShardedLaunch launch = drawn_launch(random, ranks);
      const std::string broken = broken_rule(checker, launch);
      if (!broken.empty()) FAIL(describe(launch) << ": broken: " << broken);
    }
  CHECK(checker.steps() > 100LL * launches);
}

TEST_CASE("Ranks come to an end with every small grid", "[schedule][parallel]") {
  ShardChecker checker;
  for (int ranks = 1; ranks <= most_ranks; ++ranks)
    for (int tiles_m = 1; tiles_m <= 3; ++tiles_m)
      for (int tiles_n = 1; tiles_n <= 3; ++tiles_n)
        for (int ctas = 1; ctas <= std::min(12, tiles_m * tiles_n * ranks); ++ctas)
          for (int consumers = 1; consumers <= 4; ++consumers)  // the last: two in turn
            for (const Sharding sharding : {Sharding::gathered_a, Sharding::scattered_d}) {
              ShardedLaunch launch = launch_of(sharding, ranks, tiles_m, tiles_n, ctas, 1 + (ctas + tiles_n) % 6);
              launch.ping_pong = consumers == 4;
              launch.consumers = launch.ping_pong ? 2 : consumers;
              const std::string broken = broken_rule(checker, launch);
              if (!broken.empty()) FAIL(describe(launch) << ": broken: " << broken);
            }
}

TEST_CASE("Models' layers on a whole GPU's grid of clusters", "[schedule][parallel]") {
  ShardChecker checker;
  for (const int ranks : {2, 4, 8})
    for (const Sharding sharding : {Sharding::gathered_a, Sharding::scattered_d}) {
      ShardedLaunch launch = launch_of(sharding, ranks, 4096 / ranks / 256, 8192 / 256, 66, 8, 8);
      launch.cluster_m = 2;
      launch.consumers = 2;
      CAPTURE(ranks, int(sharding));
      CHECK(broken_rule(checker, launch) == "");
    }
}

TEST_CASE("What is wrong with an order of shards is found", "[schedule][parallel]") {
  const int ranks = GENERATE(2, 3, 8);
  CAPTURE(ranks);
  CHECK(ShardChecker(ShardMistake::own_shard_first).broken_order(scattered(ranks)) ==
        "what others wait for comes before what waits for others");
  CHECK(ShardChecker(ShardMistake::own_shard_first).broken_order(launch_of(Sharding::gathered_a, ranks, 3, 2, 5, 2)) ==
        "shards of A are multiplied in the order in which they come");
  CHECK(ShardChecker(ShardMistake::flags_collide).broken_order(scattered(ranks)) == "a flag is signalled once");
  if (ranks == 2) return;  // of which each has one other
  CHECK(ShardChecker(ShardMistake::one_rank_rotates_apart).broken_order(scattered(ranks)) ==
        "at a time each rank has another shard");
  CHECK(ShardChecker(ShardMistake::tells_another_rank).broken_order(scattered(ranks)) ==
        "a flag tells of the shard of the rank that has it");
}

TEST_CASE("Waits that nothing ends are found", "[schedule][parallel]") {
  const int ranks = GENERATE(2, 3, 8);
  const bool ping_pong = GENERATE(false, true);
  CAPTURE(ranks, ping_pong);
  const ShardedLaunch launch = scattered(ranks, 2, ping_pong);
  CHECK(ShardChecker().broken_progress(launch) == "");
  for (const ShardMistake mistake : {ShardMistake::own_shard_first, ShardMistake::waits_before_it_tells}) {
    CAPTURE(int(mistake));
    CHECK_THAT(ShardChecker(mistake).broken_progress(launch), ContainsSubstring("every wait ends, but that of rank 0"));
  }
  CHECK(ShardChecker(ShardMistake::tells_unasked).broken_progress(launch) == "nobody is told of two tiles at once");
  ShardedLaunch partly_resident = launch;
  partly_resident.resident = 1;
  CHECK_THAT(ShardChecker().broken_progress(partly_resident), ContainsSubstring("every wait ends, but that of rank 0"));
}
