#include <algorithm>
#include <cmath>

#include "catch.hpp"
#include "core/problem.hpp"
#include "plan/candidates.hpp"
#include "plan/cost_model.hpp"
#include "plan/ranking.hpp"
#include "random.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

const RatedDevice h200(device_info_for("sm_90a"));

NormalProblem shape(std::int64_t m, std::int64_t n, std::int64_t k) { return normalise({.m = m, .n = n, .k = k}); }

bool whole_tiles(const KernelConfig& c) {
  return c.cluster_k == 1 && (c.schedule == Schedule::data_parallel || c.schedule == Schedule::persistent);
}
bool cut_tiles(const KernelConfig& c) { return !whole_tiles(c); }

double best_of(const NormalProblem& problem, const RatedDevice& device, bool (*wanted)(const KernelConfig&)) {
  double best = HUGE_VAL;
  for (const RankedConfig& ranked : rank(problem, device)) {
    if (wanted(ranked.config)) best = std::min(best, ranked.predicted_us);
  }
  return best;
}

}  // namespace

TEST_CASE("Few tiles with a long k are cut", "[cost_model]") {
  for (const NormalProblem& problem : {shape(128, 128, 6400), shape(512, 512, 8192), shape(128, 1536, 16384)}) {
    CAPTURE(to_string(problem));
    CHECK(cut_tiles(rank(problem, h200).front().config));
    CHECK(best_of(problem, h200, cut_tiles) < 0.9 * best_of(problem, h200, whole_tiles));
  }
}

TEST_CASE("Full waves and short k are not cut", "[cost_model]") {
  for (const NormalProblem& problem :
       {shape(8192, 8192, 8192), shape(16384, 16384, 1024), shape(8192, 8192, 128), shape(256, 256, 64)}) {
    CAPTURE(to_string(problem));
    CHECK(whole_tiles(rank(problem, h200).front().config));
  }
}

TEST_CASE("A large aligned problem takes a wide Hopper tile, persistently", "[cost_model]") {
  const KernelConfig best = rank(shape(8192, 8192, 8192), h200).front().config;
  CHECK(best.main_loop == MainLoop::sm90);
  CHECK(best.block_m * best.block_n >= 128 * 192);
  CHECK(best.schedule == Schedule::persistent);
}

TEST_CASE("A small problem takes small tiles", "[cost_model]") {
  const KernelConfig best = rank(shape(256, 256, 256), h200).front().config;
  CHECK(best.block_m * best.block_n <= 64 * 64);
}

TEST_CASE("The last, partial wave is worth a stream-K hybrid where it is nearly empty", "[cost_model]") {
  KernelConfig config{.block_m = 128, .block_n = 128, .block_k = 32, .stages = 4, .warps = 4};
  config.schedule = Schedule::persistent;
  config.grid = h200.sm_count;
  const NormalProblem problem = shape(128 * 12, 128 * 12, 8192);  // 144 tiles for 132 SMs
  const double persistent = predict_us(config, problem, h200);
  config.schedule = Schedule::stream_k_two_tile;
  CHECK(predict_us(config, problem, h200) < 0.85 * persistent);
}

TEST_CASE("Predictions are times between the floor and what nobody would ship", "[cost_model]") {
  Random random(test_seed());
  CAPTURE(test_seed());
  for (int trial = 0; trial < 300; ++trial) {
    const Problem problem =
        shape(8 * random.log_between(1, 1024), 8 * random.log_between(1, 1024), 8 * random.log_between(1, 1024));
    const std::vector<RankedConfig> ranked = rank(normalise(problem), h200);
    CAPTURE(to_string(problem), floor_us(problem));
    // The floor's 2 us are more than the smallest take: 248x328x128 was measured at 0.81 of it.
    CHECK(ranked.front().predicted_us > 0.65 * floor_us(problem));
    CHECK(ranked.front().predicted_us < 6 * floor_us(problem));
    CHECK(std::is_sorted(ranked.begin(), ranked.end(),
                         [](const auto& x, const auto& y) { return x.predicted_us < y.predicted_us; }));
    for (const RankedConfig& one : ranked) {
      if (!std::isfinite(one.predicted_us)) FAIL_CHECK(to_string(one.config));
    }
  }
}

TEST_CASE("More work takes longer, and unaligned rows do", "[cost_model]") {
  const auto best = [](const NormalProblem& problem) { return rank(problem, h200).front().predicted_us; };
  CHECK(best(shape(2048, 2048, 4096)) > best(shape(2048, 2048, 2048)));
  CHECK(best(shape(4096, 2048, 2048)) > best(shape(2048, 2048, 2048)));
  CHECK(best(shape(2048, 2048, 2047)) > best(shape(2048, 2048, 2048)));
  CHECK(best(normalise({.m = 4096, .n = 4096, .k = 64, .beta = 1})) > best(shape(4096, 4096, 64)));
}

TEST_CASE("Every device and every problem has a choice", "[cost_model]") {
  for (const char* architecture : {"sm_80", "sm_86", "sm_87", "sm_89", "sm_90a", "sm_100a", "sm_120a"}) {
    RatedDevice device(device_info_for(architecture));
    for (const bool emulated : {false, true}) {
      device.emulated = emulated;
      if (emulated) device.sm_count = 4;
      for (const NormalProblem& problem : {shape(0, 5, 5), shape(5, 0, 5), shape(5, 5, 0), shape(1, 1, 1),
                                           shape(1, 4096, 4096), shape(1 << 20, 32, 1 << 20), shape(77777, 7, 333)}) {
        CAPTURE(architecture, emulated, to_string(problem));
        const std::vector<RankedConfig> ranked = rank(problem, device, 16);
        REQUIRE(!ranked.empty());
        CHECK(ranked.front().predicted_us > 0);
        CHECK(std::isfinite(ranked.front().predicted_us));
      }
    }
  }
}

TEST_CASE("The emulator's model prefers what executes least", "[cost_model]") {
  RatedDevice device = h200;
  device.emulated = true;
  device.sm_count = 4;
  const KernelConfig best = rank(shape(40, 40, 64), device).front().config;
  CHECK(best.block_m * best.block_n <= 64 * 64);
  CHECK(whole_tiles(best));
}
