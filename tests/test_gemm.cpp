#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "all_pairs.hpp"
#include "catch.hpp"
#include "core/problem.hpp"
#include "gemm_runs.hpp"
#include "random.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

/// The shard "i/n" of JITGEMM_TEST_SHARD, for running a long list in several processes.
std::vector<GemmCase> shard(std::vector<GemmCase> cases, std::size_t block) {
  const char* text = std::getenv("JITGEMM_TEST_SHARD");
  if (!text) return cases;
  const std::size_t index = std::strtoul(text, nullptr, 10),
                    count = std::strtoul(std::strchr(text, '/') + 1, nullptr, 10);
  std::vector<GemmCase> chosen;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (i / block % count == index) chosen.push_back(cases[i]);
  }
  return chosen;
}

void run_pairwise_on_emulator(MainLoop main_loop) {
  // Two in three in order, for speed; one in an order of its own.
  GemmDevice in_order(GemmDevice::emulator());
  GemmDevice adversarial(GemmDevice::emulator(test_seed() % 1'000'000 + 1));
  const std::vector<GemmCase> cases = shard(pairwise_cases(main_loop, main_loop == MainLoop::sm80 ? 3 : 2), 1);
  in_order.compile(cases);
  run_all({&in_order, &adversarial, &in_order}, cases);
}

std::vector<char> run_once(const ContextOptions& options, const GemmCase& gemm, const GemmInputs& inputs) {
  GemmDevice device(options);
  return device.run(gemm, inputs);
}

void same_bits_in_every_order(MainLoop main_loop) {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  for (const KernelConfig& config : split_schedules(main_loop)) {
    const GemmCase gemm = plain_case(split_problem(config), config);
    const GemmInputs inputs = make_inputs(gemm, Fill::normal, test_seed());
    const std::vector<char> expected = run_once(GemmDevice::emulator(), gemm, inputs);
    INFO(to_string(gemm));
    REQUIRE(check(gemm, inputs, expected) == "");
    // A seed's lowest bit chooses the order of warps, the rest modulo 3 when asynchronous work takes effect, and a hash
    // how many blocks run at once, up to 4: 20 seeds for each of the three.
    for (std::uint64_t seed = 2; seed < 62; ++seed) {
      INFO("emulator seed " << seed);
      REQUIRE(run_once(GemmDevice::emulator(seed, 2), gemm, inputs) == expected);
    }
  }
}

}  // namespace

TEST_CASE("All pairs of choices meet, in few rows, unless they are forbidden", "[gemm]") {
  const std::vector<int> sizes{2, 3, 4, 4, 1, 9, 8, 3, 6};
  const auto pair_forbidden = [](std::size_t i, int x, std::size_t j, int y) {
    return i == 3 && j == 6 && x == 1 && y > 4;
  };
  // A rule of three axes, which shows only in a full row, leaves every pair possible.
  const Forbidden forbidden = [](const std::vector<int>& row) {
    return (row[3] == 1 && row[6] > 4) || (row[0] == 1 && row[5] == 2 && row[8] == 3);
  };
  const auto rows = all_pairs(sizes, 1, forbidden);
  CHECK(rows.size() < 100);
  for (const std::vector<int>& row : rows) CHECK_FALSE(forbidden(row));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::size_t j = i + 1; j < sizes.size(); ++j) {
      for (int x = 0; x < sizes[i]; ++x) {
        for (int y = 0; y < sizes[j]; ++y) {
          const bool meet =
              std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row[i] == x && row[j] == y; });
          CHECK(meet != pair_forbidden(i, x, j, y));
        }
      }
    }
  }
}

TEST_CASE("Problems of all pairs are right with the portable main loop", "[gemm][emulated]") {
  run_pairwise_on_emulator(MainLoop::sm80);
}

TEST_CASE("Problems of all pairs are right with the Hopper main loop", "[gemm][emulated]") {
  run_pairwise_on_emulator(MainLoop::sm90);
}

TEST_CASE("Every type is right in every layout, with both depths of a k-block", "[gemm][emulated]") {
  GemmDevice device(GemmDevice::emulator());
  for (MainLoop main_loop : {MainLoop::sm80, MainLoop::sm90}) {
    const std::vector<GemmCase> cases = layout_cases(main_loop);
    device.compile(cases);
    run_all({&device}, cases);
  }
}

TEST_CASE("Packed operands of more than 64 MiB are multiplied slab by slab", "[gemm][emulated]") {
  GemmDevice device(GemmDevice::emulator());
  KernelConfig config{.main_loop = MainLoop::sm90, .block_m = 64, .block_n = 64, .block_k = 32, .warps = 4};
  config.pack_a = config.pack_b = true;
  const GemmCase both = plain_case({.m = 70,
                                    .n = 150,
                                    .k = 130001,
                                    .a = {tf32},
                                    .b = {tf32},
                                    .d = {f32},
                                    .beta = 0.5,
                                    .epilogue = {.bias = Bias::along_n}},
                                   config, {4, 4, 4, 4});
  config.block_n = 16;
  config.block_k = 64;
  config.pack_b = false;
  config.schedule = Schedule::persistent;
  config.grid = 2;
  const GemmCase rows =
      plain_case({.m = 200, .n = 8, .k = 190001, .epilogue = {.bias = Bias::along_m}}, config, {2, 16, 2, 2});
  GemmCase columns = rows;
  columns.config.swap_ab = true;
  for (const GemmCase& gemm : {both, rows, columns}) {
    CHECK(device.context().workspace_size(gemm.problem, gemm.config) <= std::size_t(64) << 20);
    CHECK(device.context().plan(gemm.problem, gemm.config).explain().find("of D at a time") != std::string::npos);
    CHECK(run_and_check(device, gemm, Fill::normal, test_seed()) == "");
  }
}

TEST_CASE("8-bit floating point is right where mma.sync knows it", "[gemm][emulated]") {
  ContextOptions options = GemmDevice::emulator();
  options.architecture = "sm_89";
  GemmDevice device(options);
  std::vector<GemmCase> cases;
  for (const GemmCase& gemm : layout_cases(MainLoop::sm80)) {
    if (size_of(gemm.problem.a.type) == 1) cases.push_back(gemm);
  }
  device.compile(cases);
  run_all({&device}, cases);
}

TEST_CASE("The product of all choices is right with the portable main loop", "[.full][gemm][emulated]") {
  GemmDevice device(GemmDevice::emulator());
  run_all({&device}, shard(product_cases(MainLoop::sm80), 216));
}

TEST_CASE("The product of all choices is right with the Hopper main loop", "[.full][gemm][emulated]") {
  GemmDevice device(GemmDevice::emulator());
  run_all({&device}, shard(product_cases(MainLoop::sm90), 216));
}

TEST_CASE("Every order of execution gives the same bits with the portable main loop", "[gemm][emulated]") {
  same_bits_in_every_order(MainLoop::sm80);
}

TEST_CASE("Every order of execution gives the same bits with the Hopper main loop", "[gemm][emulated]") {
  same_bits_in_every_order(MainLoop::sm90);
}

TEST_CASE("With alpha = 0 or k = 0, A and B are not read", "[gemm][emulated]") {
  GemmDevice device(GemmDevice::emulator(5));
  run_all({&device}, cases_without_product());
}

TEST_CASE("NaN and infinity propagate, through relu too", "[gemm][emulated]") {
  GemmDevice device(GemmDevice::emulator());
  propagates_nan_and_infinity(device, MainLoop::sm80);
  propagates_nan_and_infinity(device, MainLoop::sm90);
}

TEST_CASE("A problem without elements is done at once", "[gemm]") {
  GemmDevice device(GemmDevice::emulator());
  CHECK_NOTHROW(device.context().gemm({.m = 0, .n = 5, .k = 7}, {}));
  CHECK_NOTHROW(device.context().gemm({.m = 5, .n = 0, .k = 7}, {}));
  CHECK(device.context().counters().launches == 0);
}

TEST_CASE("The configuration that is chosen by default is right", "[gemm][emulated]") {
  GemmDevice device(GemmDevice::emulator());
  for (const Problem& problem : {Problem{.m = 130, .n = 70, .k = 200}, Problem{.m = 1, .n = 64, .k = 512},
                                 Problem{.m = 33, .n = 35, .k = 37, .a = {bf16}, .b = {bf16}, .d = {bf16}}}) {
    GemmCase gemm = plain_case(problem, {});
    gemm.config = device.context().plan(gemm.problem).config;
    CHECK(run_and_check(device, gemm, Fill::normal, test_seed()) == "");
  }
}
