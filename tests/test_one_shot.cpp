// All-reduces in one step, on emulated devices: the kernel by itself, its types and epilogues, orders, and what it
// waits for.
#include <chrono>
#include <iostream>

#include "catch.hpp"
#include "nvrtc.hpp"
#include "one_shot_cases.hpp"

namespace jitgemm::test {
namespace {

Problem of(DataType a, DataType d, std::int64_t m, std::int64_t n) {
  return {.m = m, .n = n, .k = 8, .a = {a}, .b = {a}, .d = {d}};
}

/// Sizes in turn, of which some need more blocks than are resident, and widths by which a thread has 4, 2 and 1
/// elements.
std::vector<Problem> sizes(DataType a, DataType d) {
  return {of(a, d, 3, 40), of(a, d, 1, 7), of(a, d, 5, 38), of(a, d, 1, 264), of(a, d, 9, 100)};
}

std::string caught(const OneShotCase& of) {
  try {
    run(of);
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("Sums of all ranks are added up in one shot, of any size", "[parallel][one_shot]") {
  const int ranks = GENERATE(2, 3, 4, 5, 6, 7, 8);
  const std::uint64_t seed = GENERATE(0, 5, 8);
  CAPTURE(ranks, seed);
  REQUIRE(caught({.problems = sizes(bf16, bf16), .ranks = ranks, .seed = seed}) == "");
}

TEST_CASE("All types of sums travel in one shot", "[parallel][one_shot]") {
  const auto [a, d] = GENERATE(table<DataType, DataType>({{f16, f16},
                                                          {bf16, bf16},
                                                          {f16, f32},
                                                          {tf32, f32},
                                                          {f32, f32},
                                                          {f64, f64},
                                                          {s8, s32},
                                                          {s8, bf16},
                                                          {e4m3, bf16},
                                                          {e4m3, e4m3},
                                                          {e5m2, e5m2}}));
  CAPTURE(to_string(a), to_string(d));
  for (const std::uint64_t seed : {0, 3}) {
    OneShotCase its{.problems = sizes(a, d), .ranks = 3, .seed = seed};
    for (Problem& problem : its.problems) problem.beta = d == s32 ? 0 : 2;
    REQUIRE(caught(its) == "");
  }
}

TEST_CASE("All epilogues are applied to sums in one shot", "[parallel][one_shot]") {
  const Bias bias = GENERATE(Bias::none, Bias::along_n, Bias::along_m);
  const DataType type = GENERATE(bf16, f32);
  CAPTURE(to_string(bias), to_string(type));
  for (const Activation activation : {Activation::none, Activation::relu, Activation::leaky_relu, Activation::gelu_erf,
                                      Activation::gelu_tanh, Activation::silu}) {
    CAPTURE(to_string(activation));
    OneShotCase its{.problems = {of(type, type, 5, 36), of(type, type, 3, 19)}, .ranks = 2, .seed = 1, .calls = 3};
    for (Problem& problem : its.problems) {
      problem.alpha = 2;
      problem.beta = -1;
      problem.c.ld = problem.n + 3;
      problem.d.ld = problem.n + 4;
      problem.epilogue = {.bias = bias, .activation = activation};
      if (activation == Activation::leaky_relu) problem.epilogue.slope = 0.5;
    }
    REQUIRE(caught(its) == "");
  }
}

TEST_CASE("Rows of D and C that lie anywhere are finished in one shot", "[parallel][one_shot]") {
  OneShotCase its{.problems = {}, .ranks = 2, .seed = 2, .calls = 16};
  for (const std::int64_t n : {32, 34, 35})
    for (const std::int64_t apart : {0, 1, 2, 4}) {
      Problem problem = of(bf16, bf16, 3, n);
      problem.beta = 1;
      problem.c.ld = n + apart;
      problem.d.ld = n + 4 - apart;
      its.problems.push_back(problem);
    }
  REQUIRE(caught(its) == "");
}

TEST_CASE("Ranks get the same bits in one shot, and every run", "[parallel][one_shot]") {
  const DataType type = GENERATE(f16, f32);
  const auto in_order = run({.problems = sizes(type, type), .ranks = 4, .fractions = true});
  for (std::uint64_t seed = test_seed() % 10'000 + 1, last = seed + 3; seed <= last; ++seed) {
    CAPTURE(seed);
    REQUIRE(run({.problems = sizes(type, type), .ranks = 4, .seed = seed, .fractions = true, .delays = true}) ==
            in_order);
  }
}

TEST_CASE("Calls in one shot go on whichever rank is late", "[parallel][one_shot][soak]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  const int ranks = GENERATE(2, 3);
  CAPTURE(ranks);
  REQUIRE(caught({.problems = sizes(bf16, bf16),
                  .ranks = ranks,
                  .seed = test_seed() % 10'000 + 2,
                  .calls = 120,
                  .delays = true}) == "");
}

TEST_CASE("The number of a call in one shot may pass the largest", "[parallel][one_shot]") {
  const unsigned before = GENERATE(0xfffffffcu, 0xfffffffdu);
  for (const std::uint64_t seed : {0, 4}) {
    CAPTURE(before, seed);
    REQUIRE(caught({.problems = sizes(bf16, bf16), .ranks = 3, .seed = seed, .calls = 10, .count_from = before}) == "");
  }
}

TEST_CASE("A rank that ends is named by those that wait for it in one shot, in time", "[parallel][one_shot]") {
  const auto begin = std::chrono::steady_clock::now();
  const std::string error = caught(
      {.problems = sizes(bf16, bf16), .ranks = 3, .seed = 4, .calls = 12, .ends_after = 5, .timeout_seconds = 0.5});
  CHECK(error == "rank 0 waited in vain for rank 2 in call 6");
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
}

TEST_CASE("The kernel of one shot spills nothing", "[parallel][one_shot][cuda]") {
  const auto nvrtc = nvrtc_for();
  if (!nvrtc) SKIP(no_nvrtc);
  for (const auto& [a, d] : {std::pair{bf16, bf16}, {f16, f16}, {f32, f32}, {f64, f64}, {s8, s32}, {e4m3, e4m3}}) {
    Problem problem = of(a, d, 8, 64);
    if (d != s32) problem.beta = 1;
    problem.epilogue = {.bias = Bias::along_n, .activation = d == s32 ? Activation::relu : Activation::gelu_erf};
    const NormalProblem finish = rank_problem(problem, Exchange::all_reduce_d, 2).finish;
    for (const int elements : {1, 2, 4}) {
      if (std::size_t(elements) * size_of(type_of_c(finish)) > 8) continue;
      CAPTURE(to_string(a), to_string(d), elements);
      const KernelBinary binary = nvrtc->compile(generate_one_shot(finish, elements, nvrtc->device()));
      CHECK(binary.spill_bytes == 0);
      CHECK(binary.registers * device::ONE_SHOT_BLOCKS_PER_SM * device::ONE_SHOT_THREADS <= 65536);
    }
  }
}

/// For tools/removal.py: what a kernel waits for in vain ends it after two seconds.
TEST_CASE("Calls in one shot are right in many orders", "[.][full][removal][one_shot]") {
  for (std::uint64_t seed = 1; seed < 25; ++seed) {
    const std::string error = caught({.problems = sizes(bf16, bf16),
                                      .ranks = 2 + int(seed % 2),
                                      .seed = seed,
                                      .calls = 16,
                                      .delays = seed % 3 != 0,
                                      .timeout_seconds = 2,
                                      .count_from = seed % 4 < 2 ? 0xfffffff8u : 0});
    if (error.empty()) continue;
    std::cout << "caught with seed " << seed << ": " << error << std::endl;
    FAIL();
  }
}

TEST_CASE("Those that wait for a lost rank in one shot say so in every order", "[.][full][removal][one_shot]") {
  for (std::uint64_t seed = 1; seed < 4; ++seed) {
    const std::string error = caught(
        {.problems = sizes(bf16, bf16), .ranks = 3, .seed = seed, .calls = 6, .ends_after = 3, .timeout_seconds = 0.3});
    if (error == "rank 0 waited in vain for rank 2 in call 4") continue;
    std::cout << "caught with seed " << seed << ": " << error << std::endl;
    FAIL();
  }
}

}  // namespace jitgemm::test
