#include "plan/ranking.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/problem.hpp"
#include "random.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

const RatedDevice h200(device_info_for("sm_90a"));

NormalProblem shape(std::int64_t m, std::int64_t n, std::int64_t k) { return normalise({.m = m, .n = n, .k = k}); }

std::int64_t log_uniform(Random& random, std::int64_t multiple) {
  const double x = 128 * std::exp2(6 * random.uniform());
  return std::max<std::int64_t>(1, std::llround(x / double(multiple))) * multiple;
}

}  // namespace

TEST_CASE("A short list starts with the best, is sorted, and has several tiles", "[ranking]") {
  for (const NormalProblem& problem : {shape(4096, 4096, 4096), shape(128, 128, 6400), shape(1537, 1793, 1001)}) {
    const std::vector<RankedConfig> all = rank(problem, h200), few = rank(problem, h200, 16);
    CAPTURE(to_string(problem));
    REQUIRE(few.size() == 16);
    CHECK(few.front().config == all.front().config);
    std::map<std::string, int> of_tile;
    for (std::size_t i = 0; i < few.size(); ++i) {
      if (i > 0) CHECK(few[i - 1].predicted_us <= few[i].predicted_us);
      KernelConfig tile = few[i].config;
      tile.schedule = Schedule::data_parallel, tile.splits = 1, tile.grid = 0, tile.group_m = 0;
      ++of_tile[to_string(tile)];
    }
    CHECK(of_tile.size() >= 4);
    for (const auto& [tile, count] : of_tile) CHECK(count <= 4);
  }
  CHECK(rank(shape(4096, 4096, 4096), h200, 1).size() == 1);
}

TEST_CASE("Two stages find what ranking every candidate finds", "[ranking]") {
  const int seed = int(test_seed());
  CAPTURE(seed);
  Random random(test_seed());
  double regrets = 0;
  constexpr int problems = 120;
  for (int i = 0; i < problems; ++i) {
    const int multiple = i % 3 == 0 ? 1 : 16;
    Problem asked{
        .m = log_uniform(random, multiple), .n = log_uniform(random, multiple), .k = log_uniform(random, multiple)};
    if (i % 4 == 1) {
      asked.a.type = asked.b.type = e4m3, asked.d.type = bf16, asked.b.layout = Layout::column_major;
      if (i % 8 == 1) asked.accumulation = Accumulation::promoted;
    } else if (i % 4 == 2) {
      asked.a.type = asked.b.type = asked.d.type = bf16, asked.b.layout = Layout::column_major;
    } else if (i % 4 == 3) {
      asked.a.type = asked.b.type = i % 8 == 3 ? tf32 : s8, asked.d.type = i % 8 == 3 ? f32 : s32;
      if (i % 16 == 3) asked.a.layout = Layout::column_major;
    }
    if (i % 5 == 0) asked.batch = random.between(2, 12);  // so that operands are packed in parts
    const NormalProblem problem = normalise(asked);
    CAPTURE(to_string(problem));
    double best = std::numeric_limits<double>::infinity();
    for (const RankedConfig& ranked : rank(problem, h200)) best = std::min(best, ranked.predicted_us);
    const std::vector<RankedConfig> few = rank(problem, h200, 12);
    REQUIRE(!few.empty());
    CHECK(few.front().predicted_us <= 1.1 * best);
    CHECK(rank(problem, h200, 1).front().config == few.front().config);
    regrets += std::log(few.front().predicted_us / best);
  }
  CHECK(std::exp(regrets / problems) <= 1.005);
}

TEST_CASE("Ranking a shape's candidates takes some 50 us", "[ranking]") {
  using Clock = std::chrono::steady_clock;
  std::vector<double> us;
  for (int i = 0; i < 20; ++i) {
    const auto begin = Clock::now();
    rank(shape(4096, 4096 + 8 * i, 4096), h200, 12);
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  const double least = *std::min_element(us.begin(), us.end());
  WARN("ranked in " << least << " us");
  CHECK(least < 1000);  // on a busy machine, not optimised
}
