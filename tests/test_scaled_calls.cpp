// Scales in calls of a Context: of operands packed slab by slab, of rows whose bits do not depend on M, of what is
// tuned or swapped, and by way of C.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "c_context.hpp"
#include "catch.hpp"
#include "context_fixtures.hpp"
#include "core/element.hpp"
#include "core/problem.hpp"
#include "gemm_runs.hpp"
#include "jit/arguments.hpp"
#include "jitgemm/error.hpp"
#include "random.hpp"
#include "sandbox.hpp"
#include "scale_cases.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using namespace jitgemm::test::scales;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("Operands that are packed slab by slab have each slab's scales", "[scales][emulated]") {
  Problem problem = problem_of(70, 150, 64, e4m3, f32);
  const NormalProblem p = normalise(problem);
  const std::vector<float> scales(150);
  const Operands whole{.scale_a = scales.data(), .scale_b = scales.data()}, part = operands_at(p, whole, 20, 32);
  CHECK(part.scale_a == scales.data() + 20);
  CHECK(part.scale_b == scales.data() + 32);
  problem.b.scaling = Scaling::value;
  CHECK(operands_at(normalise(problem), whole, 20, 32).scale_b == scales.data());

  GemmDevice device(GemmDevice::emulator());
  KernelConfig config{.main_loop = MainLoop::sm90, .block_m = 64, .block_n = 16, .block_k = 128, .warps = 4};
  config.pack_a = true;
  const GemmCase rows = plain_case(problem_of(200, 8, 380001), config, {1, 16, 2, 2});
  CHECK(device.context().plan(rows.problem, rows.config).explain().find("of D at a time") != std::string::npos);
  CHECK(run_and_check(device, rows, Fill::normal, test_seed()) == "");
}

TEST_CASE("A scaled row's bits do not depend on M, nor on its place", "[scales][constraints][emulated]") {
  const TemporaryDirectory cache;
  ContextOptions options = GemmDevice::emulator();
  options.cache_dir = cache.path().string();
  options.constraints.batch_invariant = true;
  Context context(options);
  for (const Accumulation accumulation : {Accumulation::fast, Accumulation::promoted}) {
    Random random(test_seed());
    std::vector<std::string> found;
    const std::int64_t n = 48, k = 272;
    std::vector<char> row(std::size_t(k), 0), b(std::size_t(n * k), 0);
    std::vector<float> scale_b(std::size_t(n), 0.0f);
    for (std::int64_t i = 0; i < k; ++i) store(2 * random.uniform() - 1, row.data(), i, e4m3);
    for (std::int64_t i = 0; i < n * k; ++i) store(2 * random.uniform() - 1, b.data(), i, e4m3);
    for (float& scale : scale_b) scale = float(random.uniform()) + 0.1f;
    for (const std::int64_t m : {1, 2, 17, 64, 129}) {
      Problem problem = problem_of(m, n, k);
      problem.accumulation = accumulation;
      for (const std::int64_t at : {std::int64_t{0}, m / 2, m - 1}) {
        std::vector<char> a(std::size_t(m * k), 0x41), d(std::size_t(m * n * 2));
        std::copy(row.begin(), row.end(), a.begin() + at * k);
        std::vector<float> scale_a(std::size_t(m), 7.5f);
        scale_a[std::size_t(at)] = 0.3f;
        context.gemm(
            problem,
            {.a = a.data(), .b = b.data(), .d = d.data(), .scale_a = scale_a.data(), .scale_b = scale_b.data()});
        found.emplace_back(d.data() + at * n * 2, std::size_t(n * 2));
      }
    }
    CAPTURE(test_seed(), to_string(accumulation));
    CHECK(std::all_of(found.begin(), found.end(), [&](const std::string& bits) { return bits == found[0]; }));
  }
}

TEST_CASE("Vectors of scales are tuned as what they are, and served by single ones' choice until then", "[scales]") {
  const TemporaryDirectory cache;
  Context context(briefly_tuning(cache));
  for (const bool both : {true, false}) {
    Problem vectors = problem_of(both ? 40 : 56, 48, 64);
    if (!both) vectors.b.scaling = Scaling::value;
    Problem values = vectors;
    scale(values, {Scaling::value, Scaling::value});
    const auto tuned = context.counters().tuned;
    const KernelConfig single = context.tune(values).plan.config;
    CHECK(context.counters().tuned == tuned + 1);
    CHECK(context.plan(values).source == PlanSource::exact);
    const Plan until_then = context.plan(vectors);
    CHECK((until_then.source == PlanSource::model || until_then.config == single));
    CHECK_THAT(until_then.why,
               ContainsSubstring("with single scales") && ContainsSubstring("gemm() will measure first"));
    const KernelConfig best = context.tune(vectors).plan.config;
    CHECK(context.counters().tuned == tuned + 2);
    CHECK(context.plan(vectors).config == best);
    CHECK(context.plan(vectors).source == PlanSource::exact);
    CHECK_THAT(context.plan(vectors).why, !ContainsSubstring("single"));
    CHECK(context.plan(values).config == single);
  }
}

TEMPLATE_TEST_CASE("Vectors of scales reach a call", "[scales][c][emulated]", Context, CContext) {
  TestType context(GemmDevice::emulator());
  const std::vector<unsigned char> ones(32 * 32, 0x38);  // of e4m3
  std::vector<float> scale_a(3), scale_b(5), d(15, -1);
  for (std::size_t i = 0; i < 3; ++i) scale_a[i] = float(i + 1);
  for (std::size_t i = 0; i < 5; ++i) scale_b[i] = float(10 * i);
  const Operands operands{
      .a = ones.data(), .b = ones.data(), .d = d.data(), .scale_a = scale_a.data(), .scale_b = scale_b.data()};
  context.gemm(problem_of(3, 5, 32, e4m3, f32), operands);
  for (std::size_t row = 0; row < 3; ++row)
    for (std::size_t column = 0; column < 5; ++column)
      CHECK(d[row * 5 + column] == 32 * scale_a[row] * scale_b[column]);
  try {
    context.gemm(problem_of(3, 5, 32, e4m3, f32), {.a = ones.data(), .b = ones.data(), .d = d.data()});
    FAIL("a vector that is not there was not refused");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_operand);
    CHECK_THAT(error.what(), ContainsSubstring("scale_a is null"));
  }
}

TEST_CASE("A kernel with swapped operands has their scales swapped, too", "[scales]") {
  Context context({.device = Device::compile_only, .architecture = "sm_90a", .tuning = Tuning::off});
  Problem problem = problem_of(256, 256, 256);
  problem.b.scaling = Scaling::value;
  KernelConfig config = tile_of(MainLoop::sm90);
  CHECK_THAT(context.source(problem, config),
             ContainsSubstring("SCALING_A = Scaling::vector, SCALING_B = Scaling::value"));
  config.swap_ab = true;
  CHECK_THAT(context.source(problem, config),
             ContainsSubstring("SCALING_A = Scaling::value, SCALING_B = Scaling::vector"));
}
