// Batch-invariant choices give the same bits as each other.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "catch.hpp"
#include "core/problem.hpp"
#include "gemm_cases.hpp"
#include "jitgemm/error.hpp"
#include "kernels/packing.hpp"
#include "random.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

struct Asked {
  Problem problem;
  std::array<int, 4> align = {16, 16, 16, 16};
};

std::vector<Asked> asked(const std::string& architecture, int scale) {
  const auto sizes = [scale](Problem p) {
    p.m *= scale;
    p.n *= scale;
    p.k *= scale;
    return p;
  };
  const Layout column_major = Layout::column_major;
  std::vector<Asked> all{
      {sizes({.m = 72,
              .n = 136,
              .k = 328,
              .d = {f32},
              .beta = 0.5,
              .epilogue = {.bias = Bias::along_n, .activation = Activation::silu}})},
      {sizes({.m = 75, .n = 131, .k = 327, .a = {.layout = column_major}, .epilogue = {.bias = Bias::along_m}}),
       {2, 2, 2, 2}},
      {sizes({.m = 64,
              .n = 96,
              .k = 264,
              .batch = 2,
              .a = {bf16},
              .b = {.type = bf16, .layout = column_major},
              .d = {bf16}})},
      {sizes({.m = 40, .n = 80, .k = 120, .a = {tf32}, .b = {tf32}, .d = {f32}}), {4, 4, 4, 4}},
      {sizes({.m = 40, .n = 80, .k = 120, .a = {f32}, .b = {f32}, .d = {f32}, .alpha = 1.5})},
      {sizes(
          {.m = 40, .n = 72, .k = 60, .a = {f64}, .b = {.type = f64, .layout = column_major}, .d = {f64}, .beta = 1})}};
  if (architecture != "sm_80") {
    Problem fp8{.m = 80, .n = 144, .k = 528, .a = {e4m3}, .b = {.type = e5m2, .layout = column_major}, .d = {f32}};
    all.push_back({sizes(fp8)});
    fp8.accumulation = Accumulation::promoted;
    all.push_back({sizes(fp8)});
  }
  return all;
}

/// Of those that may be chosen, the ones that have something that none before has, and `others` more.
std::vector<KernelConfig> variety(const std::vector<Plan>& candidates, std::size_t others) {
  std::set<std::pair<int, int>> seen;
  std::vector<KernelConfig> chosen;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const KernelConfig& c = candidates[i].config;
    bool is_new = others > 0 && i % (1 + candidates.size() / others) == 0;
    int field = 0;
    for (const int value : {c.block_k, c.warps, int(c.ping_pong), int(c.swap_ab), int(c.schedule), int(c.cluster_m > 1),
                            int(c.cluster_n > 1), int(c.block_m > 64), int(c.block_n > 64)})
      is_new |= seen.emplace(field++, value).second;
    if (is_new) chosen.push_back(c);
  }
  return chosen;
}

/// Those that may be chosen do; and where k is cut the bits are others, so that this is more than chance.
void give_the_same_bits(GemmDevice& free, GemmDevice& device, int scale, std::size_t others) {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  int cuts_that_differ = 0;
  for (const Asked& its : asked(device.context().device().architecture, scale)) {
    const Problem problem = plain_case(normalise(its.problem), {}, its.align).problem;
    std::vector<GemmCase> cases;
    for (const KernelConfig& config : variety(device.context().candidates(problem), others))
      cases.push_back(plain_case(problem, config, its.align));
    REQUIRE(cases.size() >= 3);
    device.compile(cases);
    const GemmInputs inputs = make_inputs(cases.front(), Fill::normal, test_seed());
    const std::vector<char> expected = device.run(cases.front(), inputs);
    CAPTURE(to_string(problem), to_string(cases.front().config));
    REQUIRE(check(cases.front(), inputs, expected) == "");
    for (const GemmCase& gemm : cases) {
      INFO(to_string(gemm.config));
      CHECK(device.run(gemm, inputs) == expected);
    }
    for (const Plan& plan : free.context().candidates(problem)) {
      if (plan.config.splits == 1) continue;
      cuts_that_differ += free.run(plain_case(problem, plan.config, its.align), inputs) != expected;
      break;
    }
  }
  CHECK(cuts_that_differ >= 3);  // else bits that are the same mean nothing
}

/// What is added to the products, and rounds with them: in every choice alike.
struct Epilogue {
  const char* name;
  double alpha, beta;
  Bias bias;
  Activation activation;
};
constexpr std::array epilogues{
    Epilogue{"alpha 0.3", 0.3, 0, Bias::none, Activation::none},
    Epilogue{"beta 0.7", 1, 0.7, Bias::none, Activation::none},
    Epilogue{"alpha 0.3, beta 0.7", 0.3, 0.7, Bias::none, Activation::none},
    Epilogue{"alpha 0.3, bias along n", 0.3, 0, Bias::along_n, Activation::none},
    Epilogue{"alpha 0.3, bias along m", 0.3, 0, Bias::along_m, Activation::none},
    Epilogue{"C and bias, gelu_tanh", 0.3, 0.7, Bias::along_n, Activation::gelu_tanh},
};

struct Types {
  DataType a, d;
  Accumulation accumulation = Accumulation::fast;
};

/// The first choices of each size of a tile in turn, plain and swapped, until there are `count`.
std::vector<KernelConfig> tiles(const std::vector<Plan>& candidates, std::size_t count) {
  using Kind = std::tuple<int, int, bool>;
  std::vector<KernelConfig> chosen;
  for (int round = 0; chosen.size() < count && round < int(candidates.size()); ++round) {
    std::map<Kind, int> seen;
    for (const Plan& plan : candidates) {
      const KernelConfig& c = plan.config;
      if (seen[{c.block_m, c.block_n, c.swap_ab}]++ == round && chosen.size() < count) chosen.push_back(c);
    }
  }
  return chosen;
}

std::size_t tile_sizes(const std::vector<GemmCase>& cases) {
  std::set<std::pair<int, int>> sizes;
  for (const GemmCase& gemm : cases) sizes.emplace(gemm.config.block_m, gemm.config.block_n);
  return sizes.size();
}

/// Prints a table: how many elements of D have other bits by another choice.
void epilogues_give_the_same_bits(GemmDevice& device, const std::vector<Types>& all_types,
                                  const std::vector<Epilogue>& some, std::array<int, 3> size, std::size_t choices) {
  std::printf(
      "\n| types | epilogue | choices | sizes of tiles | swapped | elements with other bits |\n"
      "|---|---|---|---|---|---|\n");
  for (const Types& types : all_types) {
    std::vector<GemmCase> all;
    std::vector<std::vector<GemmCase>> of_epilogue;
    for (const Epilogue& its : some) {
      Problem problem{.m = size[0], .n = size[1], .k = size[2], .a = {types.a}, .b = {types.a}, .d = {types.d}};
      problem.b.layout = Layout::column_major;
      problem.alpha = its.alpha;
      problem.beta = its.beta;
      problem.epilogue.bias = its.bias;
      problem.epilogue.activation = its.activation;
      problem.accumulation = types.accumulation;
      problem = plain_case(normalise(problem), {}).problem;
      std::vector<GemmCase>& cases = of_epilogue.emplace_back();
      for (const KernelConfig& config : tiles(device.context().candidates(problem), choices))
        cases.push_back(plain_case(problem, config));
      all.insert(all.end(), cases.begin(), cases.end());
    }
    device.compile(all);
    for (std::size_t i = 0; i < some.size(); ++i) {
      const std::vector<GemmCase>& cases = of_epilogue[i];
      CAPTURE(some[i].name, to_string(cases.front().problem), test_seed());
      // f64 has no more than 9 that are batch-invariant.
      CHECK(cases.size() >= std::min(choices, device.context().candidates(cases.front().problem).size()));
      CHECK(tile_sizes(cases) >= 3);
      const GemmInputs inputs = make_inputs(cases.front(), Fill::normal, test_seed());
      const std::vector<char> expected = device.run(cases.front(), inputs);
      CHECK(check(cases.front(), inputs, expected) == "");
      int swapped = 0;
      std::int64_t others = 0;
      for (const GemmCase& gemm : cases) {
        INFO(to_string(gemm.config));
        const std::vector<char> d = device.run(gemm, inputs);
        const std::size_t element = size_of(types.d);
        std::int64_t differ = 0;
        for (std::size_t at = 0; at + element <= d.size(); at += element)
          differ += std::memcmp(&d[at], &expected[at], element) != 0;
        CHECK(differ == 0);
        others += differ;
        swapped += gemm.config.swap_ab;
      }
      std::printf("| %s -> %s | %s | %zu | %zu | %d | %lld |\n", std::string(to_string(types.a)).c_str(),
                  std::string(to_string(types.d)).c_str(), some[i].name, cases.size(), tile_sizes(cases), swapped,
                  static_cast<long long>(others));
    }
  }
  std::fflush(stdout);
}

ContextOptions batch_invariant(ContextOptions options) {
  options.constraints.batch_invariant = true;
  return options;
}

}  // namespace

TEST_CASE("Batch-invariant choices give the same bits, by the Hopper main loop", "[constraints][emulator]") {
  GemmDevice free(GemmDevice::emulator()), device(batch_invariant(GemmDevice::emulator()));
  give_the_same_bits(free, device, 1, 0);
}

TEST_CASE("Batch-invariant choices give the same bits, by the portable main loop", "[constraints][emulator]") {
  ContextOptions options = GemmDevice::emulator();
  options.architecture = "sm_80";
  GemmDevice free(options), device(batch_invariant(options));
  give_the_same_bits(free, device, 1, 0);
}

TEST_CASE("Batch-invariant choices round alpha, beta and bias alike", "[constraints][emulator]") {
  GemmDevice device(batch_invariant(GemmDevice::emulator()));
  epilogues_give_the_same_bits(device, {{f16, f32}}, {epilogues[2], epilogues[4]}, {75, 137, 72}, 6);
  epilogues_give_the_same_bits(device, {{f32, f32}}, {epilogues[5]}, {75, 137, 72}, 6);
}

TEST_CASE("Batch-invariant choices round alpha, beta and bias alike on a GPU", "[constraints][gpu]") {
  try {
    GemmDevice device(batch_invariant(GemmDevice::cuda()));
    std::vector<Types> types{{f16, f32}, {bf16, f32}, {f16, f16}, {f32, f32}, {f64, f64}};
    if (device.context().device().architecture != "sm_80") types.push_back({e4m3, f32, Accumulation::promoted});
    epilogues_give_the_same_bits(device, types, {epilogues.begin(), epilogues.end()}, {287, 441, 520}, 12);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_device) throw;
    SKIP(std::string("no CUDA device: ") + error.what());
  }
}

TEST_CASE("Batch-invariant choices give the same bits on a GPU", "[constraints][gpu]") {
  try {
    GemmDevice free(GemmDevice::cuda()), device(batch_invariant(GemmDevice::cuda()));
    give_the_same_bits(free, device, 5, 12);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_device) throw;
    SKIP(std::string("no CUDA device: ") + error.what());
  }
}
