#include "kernels/early_start.hpp"

#include "catch.hpp"
#include "core/device_info.hpp"
#include "core/groups.hpp"
#include "core/problem.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/jitgemm.hpp"
#include "kernels/launch_shape.hpp"
#include "sample_configs.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

constexpr double long_us = 40;  // of memory's time

/// Of blocks that have a tile each.
EarlyStart early_start_of(std::int64_t blocks, std::int64_t slots, double memory_us) {
  return jitgemm::early_start_of({.blocks = blocks, .slots = slots, .parts = blocks}, memory_us);
}

bool starts_freely(const EarlyStart& start) { return !start.wants_empty_gpu && !start.holds_next_back; }

KernelConfig decoding_config(int columns) {
  KernelConfig config = sm90_config;
  config.block_m = 64;
  config.block_n = columns;
  config.stages = 12;  // so many that one block fills an SM
  config.warps = 4;
  config.swap_ab = true;
  config.cluster_m = config.cluster_n = config.cluster_k = 1;
  config.schedule = Schedule::data_parallel;
  config.grid = 0;
  config.splits = 1;
  return config;
}

}  // namespace

TEST_CASE("A launch that leaves room for half of its like holds the next one back", "[early_start]") {
  for (const std::int64_t blocks : {67, 75, 96, 100}) {
    CAPTURE(blocks);
    const EarlyStart start = early_start_of(blocks, 132, long_us);
    CHECK(start.wants_empty_gpu);
    CHECK(start.holds_next_back);
  }
  // A second wave of few blocks is alike.
  CHECK(early_start_of(150, 132, long_us).holds_next_back);
  CHECK(early_start_of(168, 132, long_us).holds_next_back);
}

TEST_CASE("A launch beside which its like has room lets that start, and wants an empty GPU itself", "[early_start]") {
  for (const std::int64_t blocks : {1, 56, 66}) {
    CAPTURE(blocks);
    const EarlyStart start = early_start_of(blocks, 132, long_us);
    CHECK(start.wants_empty_gpu);
    CHECK_FALSE(start.holds_next_back);
  }
}

TEST_CASE("Launches that fill the GPU, or have nothing to lose, start and let start", "[early_start]") {
  for (const std::int64_t blocks : {0, 120, 128, 132, 240, 264, 265, 300, 1000}) {
    CAPTURE(blocks);
    CHECK(starts_freely(early_start_of(blocks, 132, long_us)));
  }
  const EarlyStart nearly_full = early_start_of(112, 132, long_us);
  CHECK_FALSE(nearly_full.holds_next_back);
  CHECK(nearly_full.wants_empty_gpu);
  for (const std::int64_t blocks : {1, 66, 67, 75, 150}) {
    CAPTURE(blocks);
    CHECK(starts_freely(early_start_of(blocks, 132, 0.5)));
    CHECK(starts_freely(early_start_of(blocks, 132, 0)));
  }
}

TEST_CASE("Blocks whose last round leaves a part of the GPU empty want all of it, and hold nobody back",
          "[early_start]") {
  const auto start_of = [](std::int64_t blocks, std::int64_t tiles, double memory_us) {
    return jitgemm::early_start_of({.blocks = blocks, .slots = 132, .parts = tiles}, memory_us);
  };
  for (const std::int64_t tiles : {192, 224, 320}) {
    CAPTURE(tiles);
    const EarlyStart start = start_of(132, tiles, long_us);
    CHECK(start.wants_empty_gpu);
    CHECK_FALSE(start.holds_next_back);
    CHECK(starts_freely(start_of(132, tiles, 2)));
  }
  // Few blocks of a last round, nearly all, many rounds.
  for (const std::int64_t tiles : {133, 140, 272, 240, 264, 5000}) {
    CAPTURE(tiles);
    CHECK(starts_freely(start_of(132, tiles, long_us)));
  }
  CHECK(starts_freely(start_of(4, 400, long_us)));  // on few SMs there is room beside it in any round
}

TEST_CASE("Launch shapes know of early starts what their device lets them", "[early_start]") {
  DeviceInfo device = device_info_for("sm_90a");
  const NormalProblem problem = normalise(parse_problem("m=32 n=4800 k=8192 layout_b=column_major"));  // 75 tiles
  const KernelConfig config = decoding_config(32);
  const LaunchShape plain = launch_shape(problem, config), shape = launch_shape_on(device, problem, config);
  CHECK(plain.grid == 75);
  CHECK_FALSE((plain.holds_next_back || plain.wants_empty_gpu));
  CHECK((shape.holds_next_back && shape.wants_empty_gpu));
  CHECK(shape.grid == plain.grid);
  CHECK(shape.workspace_bytes() == plain.workspace_bytes());

  SECTION("clusters of which as many fit as GPCs have room for") {
    KernelConfig clusters = config;
    clusters.cluster_m = 4;  // 16 of 30
    const NormalProblem wide = normalise(parse_problem("m=32 n=4096 k=8192 layout_b=column_major"));
    CHECK(launch_shape_on(device, wide, clusters).holds_next_back);
    CHECK_FALSE(launch_shape_on(device, wide, config).holds_next_back);
  }
  SECTION("without dependent launch there is nothing to hold back") {
    device.dependent_launch = false;
    CHECK_FALSE(launch_shape_on(device, problem, config).holds_next_back);
    CHECK_FALSE(launch_shape_on(device, problem, config).wants_empty_gpu);
  }
  SECTION("faster memory has less to lose") {
    device.memory_gb_s = 4900;
    CHECK(launch_shape_on(device, problem, config).holds_next_back);  // as of a device that does not say
    device.memory_gb_s = 490000;
    CHECK_FALSE(launch_shape_on(device, problem, config).holds_next_back);
  }
  SECTION("blocks that take tiles in turn") {
    KernelConfig in_turn = config;
    in_turn.schedule = Schedule::persistent;
    in_turn.grid = 132;
    const NormalProblem wide = normalise(parse_problem("m=32 n=14336 k=8192 layout_b=column_major"));  // 224 tiles
    CHECK(launch_shape_on(device, wide, in_turn).wants_empty_gpu);
    const NormalProblem full = normalise(parse_problem("m=32 n=16896 k=8192 layout_b=column_major"));  // 264
    CHECK_FALSE(launch_shape_on(device, full, in_turn).wants_empty_gpu);
  }
  SECTION("where tensor cores take longer than memory, it does not matter where blocks sit") {
    KernelConfig large = config;
    large.block_m = 128;
    large.block_n = 256;
    large.stages = 4;
    large.warps = 8;
    const NormalProblem products = normalise(parse_problem("m=1280 n=2048 k=8192 layout_b=column_major"));  // 80 tiles
    CHECK(launch_shape_on(device, products, large).grid == 80);
    CHECK_FALSE(launch_shape_on(device, products, large).wants_empty_gpu);
  }
  SECTION("the portable kernels do as ever") {
    CHECK_FALSE(launch_shape_on(device, problem, sm80_config).holds_next_back);
  }
}

TEST_CASE("A launch that holds the next one back is right, and does", "[early_start][emulator][context]") {
  // 4 blocks for 7 SMs that read 9 MB; the emulator faults on a trigger.
  const Problem problem = parse_problem("m=1 n=256 k=17408 layout_b=column_major");
  const KernelConfig config = decoding_config(16);
  const TemporaryDirectory cache;
  Context context(
      {.device = Device::emulator, .tuning = Tuning::off, .cache_dir = cache.path().string(), .emulator_sm_count = 7});
  std::vector<std::uint16_t> a(17408, 0x3c00), b(256 * 17408, 0), d(256, 0xffff);
  for (std::size_t column = 0; column < 256; ++column) b[column * 17408 + column] = 0x4000;
  context.gemm(problem, {.a = a.data(), .b = b.data(), .d = d.data()}, nullptr, config);
  CHECK(d == std::vector<std::uint16_t>(256, 0x4000));
}
