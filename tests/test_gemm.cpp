#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "all_pairs.hpp"
#include "catch.hpp"
#include "core/problem.hpp"
#include "gemm_cases.hpp"
#include "random.hpp"
#include "reference.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

/// A CUDA device that can run the main loop, or why there is none.
std::optional<GemmDevice> cuda_device(std::string& why_not, MainLoop main_loop = MainLoop::sm80) {
  try {
    GemmDevice device(GemmDevice::cuda());
    const std::string architecture = device.context().device().architecture;
    if (main_loop == MainLoop::sm80 || architecture == "sm_90a") return device;
    why_not = "the device is " + architecture + ", and wgmma needs sm_90a";
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_device) throw;
    why_not = std::string("no CUDA device: ") + error.what();
  }
  return std::nullopt;
}

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

/// Runs every case on one of the devices in turn; reports up to a few failures.
void run_all(std::vector<GemmDevice*> devices, const std::vector<GemmCase>& cases) {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  int failures = 0;
  for (std::size_t i = 0; i < cases.size() && failures < 5; ++i) {
    const Fill fill = i % 3 == 2 ? Fill::integers : Fill::normal;
    const std::string wrong = run_and_check(*devices[i % devices.size()], cases[i], fill, test_seed() + i);
    if (wrong.empty()) continue;
    ++failures;
    FAIL_CHECK(wrong);
  }
  CHECK(cases.size() > 0);
}

void run_pairwise_on_emulator(MainLoop main_loop) {
  // Two in three in order, for speed; one in an order of its own.
  GemmDevice in_order(GemmDevice::emulator());
  GemmDevice adversarial(GemmDevice::emulator(test_seed() % 1'000'000 + 1));
  const std::vector<GemmCase> cases = pairwise_cases(main_loop, 3);
  in_order.compile(cases);
  run_all({&in_order, &adversarial, &in_order}, cases);
}

KernelConfig small_tile(MainLoop main_loop) {
  if (main_loop == MainLoop::sm80)
    return {.block_m = 64, .block_n = 32, .block_k = 32, .group_m = 2, .stages = 3, .warps = 4};
  return {.main_loop = MainLoop::sm90,
          .block_m = 128,
          .block_n = 128,
          .block_k = 64,
          .group_m = 2,
          .stages = 3,
          .warps = 8};
}

/// The schedules that cut tiles, as programs that meet in every way: few to a tile, many, and whole tiles after.
std::vector<KernelConfig> split_schedules(MainLoop main_loop) {
  std::vector<KernelConfig> configs;
  const auto add = [&](Schedule schedule, int splits, int grid) {
    KernelConfig config = small_tile(main_loop);
    config.schedule = schedule;
    config.splits = splits;
    config.grid = grid;
    configs.push_back(config);
  };
  add(Schedule::split_k, 3, 0);
  add(Schedule::split_k, 5, 7);
  add(Schedule::stream_k, 1, 5);
  add(Schedule::stream_k, 1, 23);
  add(Schedule::stream_k_one_tile, 1, 4);
  add(Schedule::stream_k_two_tile, 1, 4);
  return configs;
}

/// 14 ragged tiles (10 for the larger ones) of 5 k-steps, with every operand of an epilogue.
Problem split_problem(const KernelConfig& config) {
  const bool sm80 = config.main_loop == MainLoop::sm80;
  return {.m = 2 * config.block_m - 27,
          .n = (sm80 ? 7 : 5) * config.block_n - 5,
          .k = 5 * config.block_k - 9,
          .d = f32,
          .alpha = 0.75,
          .beta = -1.5,
          .bias = Bias::along_n,
          .activation = Activation::relu};
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

/// Nothing is multiplied: A and B are full of NaN. TMA has nothing to describe then, so this is the portable main
/// loop's.
std::vector<GemmCase> cases_without_product() {
  std::vector<GemmCase> cases;
  std::vector<KernelConfig> configs = split_schedules(MainLoop::sm80);
  configs.push_back(small_tile(MainLoop::sm80));
  for (const KernelConfig& config : configs) {
    Problem problem = split_problem(config);
    problem.k = 0;
    cases.push_back(plain_case(problem, config));
    problem = split_problem(config);
    problem.alpha = 0;
    cases.push_back(plain_case(problem, config));
  }
  return cases;
}

/// D with one element of A or C replaced; row 3 of A, element (3, 5) of C.
std::vector<double> row_with(GemmDevice& device, MainLoop main_loop, Activation activation, double in_a, double in_c) {
  Problem problem{.m = 40, .n = 24, .k = 40, .beta = 1, .activation = activation};
  const GemmCase gemm = plain_case(problem, small_tile(main_loop));
  GemmInputs inputs = make_inputs(gemm, Fill::normal, 1);
  if (in_a != 0) store(in_a, inputs.a.data(), 3 * gemm.problem.lda + 7, f16);
  if (in_c != 0) store(in_c, inputs.c.data(), 3 * gemm.problem.ldc + 5, f16);
  const std::vector<char> d = device.run(gemm, inputs);
  CHECK(check(gemm, inputs, d) == "");
  std::vector<double> row;
  for (int column = 0; column < 24; ++column)
    row.push_back(load(d.data() + d_guard_bytes, 3 * gemm.problem.ldd + column, f16));
  return row;
}

void propagates_nan_and_infinity(GemmDevice& device, MainLoop main_loop) {
  const double not_a_number = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  for (Activation activation : {Activation::none, Activation::relu, Activation::leaky_relu}) {
    for (double x : row_with(device, main_loop, activation, not_a_number, 0)) CHECK(std::isnan(x));
    CHECK(std::isnan(row_with(device, main_loop, activation, 0, not_a_number)[5]));
    CHECK(row_with(device, main_loop, activation, 0, infinity)[5] == infinity);
    CHECK(row_with(device, main_loop, activation, 0, -infinity)[5] == (activation == Activation::relu ? 0 : -infinity));
    for (double x : row_with(device, main_loop, activation, infinity, 0)) CHECK((std::isinf(x) || x == 0));
    CHECK(std::isnan(row_with(device, main_loop, activation, infinity, not_a_number)[5]));
  }
}

}  // namespace

TEST_CASE("All pairs of choices meet, in few rows, unless they are forbidden", "[gemm]") {
  const std::vector<int> sizes{2, 3, 4, 4, 1, 9, 8, 3, 6};
  const auto forbidden = [](std::size_t i, int x, std::size_t j, int y) { return i == 3 && j == 6 && x == 1 && y > 4; };
  const auto rows = all_pairs(sizes, 1, forbidden);
  CHECK(rows.size() < 100);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::size_t j = i + 1; j < sizes.size(); ++j) {
      for (int x = 0; x < sizes[i]; ++x) {
        for (int y = 0; y < sizes[j]; ++y) {
          const bool meet =
              std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row[i] == x && row[j] == y; });
          CHECK(meet != forbidden(i, x, j, y));
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

TEST_CASE("Every type is right in every layout, with both depths of a k-step", "[gemm][emulated]") {
  GemmDevice device(GemmDevice::emulator());
  for (MainLoop main_loop : {MainLoop::sm80, MainLoop::sm90}) {
    const std::vector<GemmCase> cases = layout_cases(main_loop);
    device.compile(cases);
    run_all({&device}, cases);
  }
}

TEST_CASE("Problems of all pairs are right with packed operands", "[gemm][emulated]") {
  GemmDevice in_order(GemmDevice::emulator());
  GemmDevice adversarial(GemmDevice::emulator(test_seed() % 1'000'000 + 1));
  const std::vector<GemmCase> cases = packed_cases();
  in_order.compile(cases);
  run_all({&in_order, &adversarial, &in_order}, cases);
}

TEST_CASE("Packed operands of more than 64 MiB are multiplied slab by slab", "[gemm][emulated]") {
  GemmDevice device(GemmDevice::emulator());
  KernelConfig config{.main_loop = MainLoop::sm90, .block_m = 64, .block_n = 64, .block_k = 32, .warps = 4};
  config.pack_a = config.pack_b = true;
  const GemmCase both = plain_case(
      {.m = 70, .n = 150, .k = 130001, .a = tf32, .b = tf32, .d = f32, .beta = 0.5, .bias = Bias::along_n}, config, {4, 4, 4, 4});
  config.block_n = 16;
  config.block_k = 64;
  config.pack_b = false;
  config.schedule = Schedule::persistent;
  config.grid = 2;
  const GemmCase rows =
      plain_case({.m = 200, .n = 8, .k = 190001, .bias = Bias::along_m}, config, {2, 16, 2, 2});
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
    if (size_of(gemm.problem.a) == 1) cases.push_back(gemm);
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
                                 Problem{.m = 33, .n = 35, .k = 37, .a = bf16, .b = bf16, .d = bf16}}) {
    GemmCase gemm = plain_case(problem, {});
    gemm.config = device.context().plan(gemm.problem).config;
    CHECK(run_and_check(device, gemm, Fill::normal, test_seed()) == "");
  }
}

namespace {

void run_pairwise_on_gpu(GemmDevice& device, MainLoop main_loop) {
  std::vector<GemmCase> cases = pairwise_cases(main_loop, 3);
  for (const GemmCase& gemm : layout_cases(main_loop)) cases.push_back(gemm);
  if (main_loop == MainLoop::sm90) {
    for (const GemmCase& gemm : packed_cases()) cases.push_back(gemm);
  }
  device.compile(cases);
  run_all({&device}, cases);
  if (main_loop == MainLoop::sm80) run_all({&device}, cases_without_product());
  propagates_nan_and_infinity(device, main_loop);
}

void repeats_bit_for_bit(GemmDevice& device, MainLoop main_loop) {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  for (KernelConfig config : split_schedules(main_loop)) {
    for (const int larger : {1, main_loop == MainLoop::sm80 ? 6 : 3}) {  // a few blocks, and the whole device
      if (larger > 1 && config.grid > 0) config.grid = device.context().device().sm_count - 5;
      Problem problem = split_problem(config);
      problem.m *= larger;
      problem.n *= larger;
      problem.k *= larger;
      const GemmCase gemm = plain_case(problem, config);
      const GemmInputs inputs = make_inputs(gemm, Fill::normal, test_seed());
      const std::vector<char> expected = device.run(gemm, inputs);
      INFO(to_string(gemm));
      REQUIRE(check(gemm, inputs, expected) == "");
      for (int repeat = 0; repeat < 200; ++repeat) REQUIRE(device.run(gemm, inputs) == expected);
    }
  }
}

/// Integers bit for bit. With other inputs a GPU's tensor cores round sums in their own way, so that each side is held
/// to the contract instead.
void agrees_with_emulator(GemmDevice& gpu, MainLoop main_loop) {
  GemmDevice emulator(GemmDevice::emulator());
  std::vector<GemmCase> cases;
  for (const GemmCase& gemm : pairwise_cases(main_loop, 1)) {
    if (cases.size() < 24) cases.push_back(gemm);
  }
  gpu.compile(cases);
  emulator.compile(cases);
  for (const GemmCase& gemm : cases) {
    INFO(to_string(gemm) << ", JITGEMM_TEST_SEED=" << test_seed());
    const GemmInputs integers = make_inputs(gemm, Fill::integers, test_seed());
    if (exact_with_integers(gemm)) CHECK(gpu.run(gemm, integers) == emulator.run(gemm, integers));
    const GemmInputs normal = make_inputs(gemm, Fill::normal, test_seed());
    CHECK(check(gemm, normal, gpu.run(gemm, normal)) == "");
    CHECK(check(gemm, normal, emulator.run(gemm, normal)) == "");
  }
}

std::vector<Problem> corpus(const std::string& name) {
  std::ifstream file(std::string(JITGEMM_SOURCE_DIR) + "/tests/corpora/" + name);
  std::vector<Problem> problems;
  for (Problem problem; file >> problem.m >> problem.n >> problem.k;) problems.push_back(problem);
  return problems;
}

/// Empty, or an element of D that is wrong: the corners and some between, of a D too large to check whole.
std::string spot_check(GemmDevice& device, const GemmCase& gemm, std::uint64_t seed) {
  const GemmInputs inputs = make_inputs(gemm, Fill::normal, seed);
  const std::vector<char> d = device.run(gemm, inputs);
  const Operands operands{.a = inputs.a.data() + gemm.offset_a, .b = inputs.b.data() + gemm.offset_b};
  const Problem& p = gemm.problem;
  Random random(seed);
  for (int i = 0; i < 400; ++i) {
    const std::int64_t row = i < 4 ? i % 2 * (p.m - 1) : std::int64_t(random.uniform() * double(p.m));
    const std::int64_t column = i < 4 ? i / 2 * (p.n - 1) : std::int64_t(random.uniform() * double(p.n));
    const ReferenceElement expected = reference_element(p, operands, gemm.config.main_loop, 0, row, column);
    const double value = load(d.data() + d_guard_bytes + gemm.offset_d, row * p.ldd + column, p.d);
    if (within(value, expected, p.d)) continue;
    return to_string(gemm) + ": D(" + std::to_string(row) + ", " + std::to_string(column) + ") is " +
           std::to_string(value) + ", not " + std::to_string(expected.d) + " +- " + std::to_string(expected.bound);
  }
  return "";
}

/// Few, small, and through every path: for compute-sanitizer.
void run_small(GemmDevice& device, MainLoop main_loop) {
  std::vector<GemmCase> cases;
  for (const KernelConfig& config : split_schedules(main_loop)) {
    Problem problem = split_problem(config);
    for (const DataType d : {f16, f32}) {
      problem.d = d;
      cases.push_back(plain_case(problem, config));
    }
  }
  const std::vector<GemmCase> pairwise = pairwise_cases(main_loop, 1), layouts = layout_cases(main_loop);
  for (std::size_t i = 0; i < pairwise.size(); i += 6) cases.push_back(pairwise[i]);
  for (std::size_t i = 0; i < layouts.size(); i += 3) cases.push_back(layouts[i]);
  if (main_loop == MainLoop::sm90) {
    const std::vector<GemmCase> packed = packed_cases();
    for (std::size_t i = 0; i < packed.size(); i += 4) cases.push_back(packed[i]);
  }
  device.compile(cases);
  run_all({&device}, cases);
}

}  // namespace

TEST_CASE("On the GPU, problems of all pairs are right with the portable main loop", "[gpu][gemm]") {
  std::string why_not;
  auto device = cuda_device(why_not);
  if (!device) SKIP(why_not);
  run_pairwise_on_gpu(*device, MainLoop::sm80);
}

TEST_CASE("On the GPU, problems of all pairs are right with the Hopper main loop", "[gpu][gemm]") {
  std::string why_not;
  auto device = cuda_device(why_not, MainLoop::sm90);
  if (!device) SKIP(why_not);
  run_pairwise_on_gpu(*device, MainLoop::sm90);
}

TEST_CASE("On the GPU, 200 repeats of each split schedule give the same bits with the portable main loop",
          "[gpu][gemm]") {
  std::string why_not;
  auto device = cuda_device(why_not);
  if (!device) SKIP(why_not);
  repeats_bit_for_bit(*device, MainLoop::sm80);
}

TEST_CASE("On the GPU, 200 repeats of each split schedule give the same bits with the Hopper main loop",
          "[gpu][gemm]") {
  std::string why_not;
  auto device = cuda_device(why_not, MainLoop::sm90);
  if (!device) SKIP(why_not);
  repeats_bit_for_bit(*device, MainLoop::sm90);
}

TEST_CASE("GPU and emulator agree with the portable main loop", "[gpu][gemm]") {
  std::string why_not;
  auto device = cuda_device(why_not);
  if (!device) SKIP(why_not);
  agrees_with_emulator(*device, MainLoop::sm80);
}

TEST_CASE("GPU and emulator agree with the Hopper main loop", "[gpu][gemm]") {
  std::string why_not;
  auto device = cuda_device(why_not, MainLoop::sm90);
  if (!device) SKIP(why_not);
  agrees_with_emulator(*device, MainLoop::sm90);
}

TEST_CASE("On the GPU, shapes of the corpora are right with the chosen configuration and every schedule",
          "[gpu][gemm]") {
  std::string why_not;
  auto device = cuda_device(why_not);
  if (!device) SKIP(why_not);
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  for (const char* name :
       {"streamk_aligned8_300.txt", "streamk_unaligned_100.txt", "llm_decode_49.txt", "seed_singles.txt"}) {
    const std::vector<Problem> problems = corpus(name);
    REQUIRE(problems.size() > 0);
    for (std::size_t i = 0; i < problems.size(); i += 1 + problems.size() / 8) {
      if (problems[i].k * std::max(problems[i].m, problems[i].n) > 1 << 25) continue;  // slow to make on the host
      GemmCase gemm;
      gemm.problem = normalise(problems[i]);  // packed, as unaligned as its sizes are
      gemm.config = device->context().plan(gemm.problem).config;
      CHECK(spot_check(*device, gemm, test_seed() + i) == "");
      const int programs = device->context().device().sm_count;
      for (const Schedule schedule : {Schedule::persistent, Schedule::stream_k, Schedule::stream_k_two_tile}) {
        gemm.config = {.stages = 4, .warps = 8, .schedule = schedule, .grid = programs};
        CHECK(spot_check(*device, gemm, test_seed() + i) == "");
      }
    }
  }
}

TEST_CASE("On the GPU, small problems are right with the portable main loop", "[gpu][gemm][small]") {
  std::string why_not;
  auto device = cuda_device(why_not);
  if (!device) SKIP(why_not);
  run_small(*device, MainLoop::sm80);
}

TEST_CASE("On the GPU, small problems are right with the Hopper main loop", "[gpu][gemm][small]") {
  std::string why_not;
  auto device = cuda_device(why_not, MainLoop::sm90);
  if (!device) SKIP(why_not);
  run_small(*device, MainLoop::sm90);
}
