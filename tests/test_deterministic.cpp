// Deterministic choices give the same bits as each other.
#include <set>
#include <string>
#include <tuple>

#include "catch.hpp"
#include "core/packing.hpp"
#include "core/problem.hpp"
#include "gemm_cases.hpp"
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
      {sizes(
          {.m = 72, .n = 136, .k = 328, .d = f32, .beta = 0.5, .bias = Bias::along_n, .activation = Activation::silu})},
      {sizes({.m = 75, .n = 131, .k = 327, .layout_a = column_major, .bias = Bias::along_m}), {2, 2, 2, 2}},
      {sizes({.m = 64, .n = 96, .k = 264, .a = bf16, .b = bf16, .d = bf16, .layout_b = column_major, .batch = 2})},
      {sizes({.m = 40, .n = 80, .k = 120, .a = tf32, .b = tf32, .d = f32}), {4, 4, 4, 4}},
      {sizes({.m = 40, .n = 80, .k = 120, .a = f32, .b = f32, .d = f32, .alpha = 1.5})},
      {sizes({.m = 40, .n = 72, .k = 60, .a = f64, .b = f64, .d = f64, .layout_b = column_major, .beta = 1})}};
  if (architecture != "sm_80") {
    Problem fp8{.m = 80, .n = 144, .k = 528, .a = e4m3, .b = e5m2, .d = f32, .layout_b = column_major};
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

ContextOptions deterministic(ContextOptions options) {
  options.constraints.deterministic = true;
  return options;
}

}  // namespace

TEST_CASE("Deterministic choices give the same bits, by the Hopper main loop", "[constraints][emulator]") {
  GemmDevice free(GemmDevice::emulator()), device(deterministic(GemmDevice::emulator()));
  give_the_same_bits(free, device, 1, 0);
}

TEST_CASE("Deterministic choices give the same bits, by the portable main loop", "[constraints][emulator]") {
  ContextOptions options = GemmDevice::emulator();
  options.architecture = "sm_80";
  GemmDevice free(options), device(deterministic(options));
  give_the_same_bits(free, device, 1, 0);
}

TEST_CASE("Deterministic choices give the same bits on a GPU", "[constraints][gpu]") {
  try {
    GemmDevice free(GemmDevice::cuda()), device(deterministic(GemmDevice::cuda()));
    give_the_same_bits(free, device, 5, 12);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_device) throw;
    SKIP(std::string("no CUDA device: ") + error.what());
  }
}
