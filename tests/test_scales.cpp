// Scales that are no single values: vectors, one a row of A and a column of B, and those of blocks of 128 of k. What a
// call's scales mean is in reference.cpp, which multiplies in float64; how they are rounded in test_bit_agreement.cpp;
// which are refused in test_problem.cpp and test_operands.cpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "backend/backend.hpp"
#include "c_context.hpp"
#include "catch.hpp"
#include "context_fixtures.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "gemm_choices.hpp"
#include "gemm_runs.hpp"
#include "jit/arguments.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "nvrtc.hpp"
#include "random.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Vectors on both sides, or on one beside a single value.
constexpr std::array sides{std::array{Scaling::vector, Scaling::vector}, std::array{Scaling::vector, Scaling::value},
                           std::array{Scaling::value, Scaling::vector}};

constexpr Scaling rows_of_blocks = Scaling::block_1x128, squares = Scaling::block_128x128;
constexpr std::array blocks{std::array{rows_of_blocks, squares}, std::array{rows_of_blocks, rows_of_blocks},
                            std::array{squares, rows_of_blocks}, std::array{squares, squares}};

void scale(Problem& problem, std::array<Scaling, 2> how) {
  problem.a.scaling = how[0];
  problem.b.scaling = how[1];
}

/// Those of all pairs that may have vectors, every other kernel.
std::vector<GemmCase> scaled_pairs(MainLoop main_loop) {
  std::vector<GemmCase> cases = pairwise_cases(main_loop, 1);
  std::size_t kernels = 0;
  std::erase_if(cases, [&](const GemmCase& gemm) { return !takes_scales(gemm.problem) || ++kernels % 2 == 0; });
  for (std::size_t i = 0; i < cases.size(); ++i) {
    scale(cases[i].problem, sides[i % sides.size()]);
    if (i % 2 == 1) cases[i].scales[0] = cases[i].scales[1] = -0.5f;  // of a side that has a single value
  }
  return cases;
}

void pairs_are_right(const ContextOptions& in_order, const ContextOptions& adversarial, MainLoop main_loop) {
  GemmDevice first(in_order), second(adversarial);
  const std::vector<GemmCase> cases = scaled_pairs(main_loop);
  first.compile(cases);
  run_all({&first, &second}, cases);
}

KernelConfig tile_of(MainLoop main_loop) {
  KernelConfig config = small_tile(main_loop);
  config.block_k *= 2;  // of 8-bit elements
  return config;
}

/// m x n from k, both sides scaled by vectors.
Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k, DataType a = e4m3, DataType d = bf16) {
  Problem problem{.m = m, .n = n, .k = k, .a = {a}, .b = {.type = a, .layout = Layout::column_major}, .d = {d}};
  scale(problem, sides[0]);
  return problem;
}

double element(const GemmCase& gemm, const std::vector<char>& d, std::int64_t row, std::int64_t column) {
  return load(d.data() + d_guard_bytes + gemm.offset_d, row * gemm.problem.d.ld + column, gemm.problem.d.type);
}

void splits_and_swaps(GemmDevice& device) {
  std::vector<GemmCase> cases;
  for (const MainLoop main_loop : {MainLoop::sm80, MainLoop::sm90}) {
    for (KernelConfig config : split_schedules(main_loop)) {
      config.block_k *= 2;
      Problem problem = split_problem(config);
      problem.a.type = cases.size() % 2 == 0 ? e4m3 : s8;
      problem.b = {.type = problem.a.type, .layout = Layout::column_major};
      problem.d.type = cases.size() % 3 == 0 ? f16 : f32;
      problem.accumulation = cases.size() % 4 == 0 ? Accumulation::promoted : Accumulation::fast;
      scale(problem, sides[cases.size() % 3]);
      cases.push_back(plain_case(problem, config));
      config.swap_ab = main_loop == MainLoop::sm90;
      problem.batch = 2;
      problem.epilogue.bias = Bias::along_m;
      cases.push_back(plain_case(problem, config));
    }
  }
  device.compile(cases);
  run_all({&device}, cases);
}

void edges(GemmDevice& device) {
  std::vector<GemmCase> cases;
  for (const MainLoop main_loop : {MainLoop::sm80, MainLoop::sm90}) {
    for (const bool swap : {false, true}) {
      if (swap && main_loop == MainLoop::sm80) continue;
      KernelConfig config = tile_of(main_loop);
      config.swap_ab = swap;
      for (const auto& [m, n] : {std::array<std::int64_t, 2>{1, 1}, {1, 136}, {136, 1}, {1, 7}, {131, 3}, {200, 259}})
        for (const DataType d : {bf16, f32, e4m3}) {
          GemmCase gemm = plain_case(problem_of(m, n, 144, e4m3, d), config, {16, 16, 1, int(size_of(d))});
          if (d == e4m3) gemm.scales[2] = 0.25f;
          cases.push_back(gemm);
        }
    }
  }
  device.compile(cases);
  run_all({&device}, cases);
}

void integers(GemmDevice& device) {
  std::vector<GemmCase> cases;
  for (const MainLoop main_loop : {MainLoop::sm80, MainLoop::sm90})
    for (const DataType d : {f16, bf16, f32})
      for (const bool vectors : {false, true})
        for (const Activation activation : {Activation::none, Activation::silu}) {
          Problem problem = problem_of(70, 140, 300, s8, d);
          if (!vectors) scale(problem, {Scaling::value, Scaling::value});
          problem.alpha = 1.0 / 1024;
          problem.beta = activation == Activation::none ? 0 : -0.75;
          problem.epilogue = {.bias = d == f16 ? Bias::none : Bias::along_n, .activation = activation};
          GemmCase gemm = plain_case(problem, tile_of(main_loop));
          if (!vectors) gemm.scales = {0.25f, -2.0f, 0};  // exact, as vectors of Fill::integers are
          cases.push_back(gemm);
        }
  device.compile(cases);
  run_all({&device}, cases);
}

/// A problem and a configuration, with every way to scale blocks.
void add_blocks(std::vector<GemmCase>& cases, Problem problem, const std::string& config, int align_ab = 16) {
  for (const auto& how : blocks) {
    scale(problem, how);
    cases.push_back(plain_case(problem, parse_kernel_config(config), {align_ab, align_ab, 16, 16}));
  }
}

void scaled_blocks(GemmDevice& device) {
  Problem problem = problem_of(300, 290, 700);
  problem.beta = -0.5;
  problem.epilogue = {.bias = Bias::along_n, .activation = Activation::relu};
  std::vector<GemmCase> cases;
  for (const char* config : {"sm90 128x128x128 stages=3 warps=8 schedule=data_parallel",
                             "sm90 64x96x128 stages=3 warps=4 schedule=persistent grid=3",
                             "sm90 64x48x128 stages=3 warps=4 swap_ab=true schedule=split_k splits=2",
                             "sm90 64x64x128 stages=3 warps=8 consumers=ping_pong schedule=stream_k grid=3",
                             "sm90 64x64x128 stages=4 warps=4 cluster=1x1x2 schedule=data_parallel",
                             "sm90 128x32x128 stages=3 warps=8 cluster=2x1x1 swap_ab=true schedule=stream_k grid=4",
                             "sm80 64x64x128 stages=3 warps=4 schedule=data_parallel",
                             "sm80 32x64x64 stages=3 warps=4 schedule=split_k splits=3",
                             "sm80 64x128x64 stages=3 warps=8 schedule=stream_k grid=5"})
    add_blocks(cases, problem, config);
  // Consumers of more than 64 rows, whose sums are added one after the other, and 64 rows at a time.
  for (const char* config : {"sm90 256x80x128 stages=2 warps=8 schedule=persistent grid=2",
                             "sm90 256x112x128 stages=2 warps=8 swap_ab=true schedule=data_parallel",
                             "sm90 192x48x128 stages=2 warps=8 consumers=ping_pong schedule=persistent grid=1",
                             "sm90 128x128x128 stages=2 warps=4 schedule=split_k splits=2"})
    add_blocks(cases, problem, config);
  for (const char* config : {"sm90 256x128x128 stages=2 warps=8 schedule=persistent grid=2",
                             "sm90 256x128x128 stages=3 warps=8 cluster=1x2x1 schedule=stream_k grid=2",
                             "sm90 192x96x128 stages=2 warps=8 consumers=ping_pong schedule=persistent grid=1"}) {
    for (const Scaling of_a : {rows_of_blocks, squares}) {
      scale(problem, {of_a, squares});
      cases.push_back(plain_case(problem, parse_kernel_config(config)));
    }
  }
  Problem wide = problem_of(70, 400, 260, e5m2, f32);  // a tile over two and over three blocks of columns
  scale(wide, blocks[0]);
  cases.push_back(plain_case(wide, parse_kernel_config("sm90 64x192x128 stages=3 warps=4 schedule=data_parallel")));
  Problem columns = problem_of(150, 140, 400, e4m3, f16);  // M- and N-major, one element aligned, packed
  columns.a.layout = Layout::column_major;
  columns.b.layout = Layout::row_major;
  add_blocks(cases, columns, "sm80 64x64x64 stages=3 warps=4 schedule=data_parallel");
  add_blocks(cases, columns, "sm90 64x64x128 stages=3 warps=4 pack=ab schedule=data_parallel", 1);
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1}, {1, 300, 128}, {130, 1, 129}, {3, 5, 1000}})
    add_blocks(cases, problem_of(m, n, k, e4m3, f32), "sm90 64x32x128 stages=3 warps=4 schedule=data_parallel");
  device.compile(cases);
  run_all({&device}, cases);
}

/// No scale is that of the one beside it, or 1.
void make_neighbours_differ(GemmInputs& inputs) {
  for (auto* const scales : {&inputs.scales_a, &inputs.scales_b})
    for (std::size_t i = 0; i < scales->size(); ++i) (*scales)[i] = std::array{1.25f, 0.5f, -0.75f}[i % 3];
}

}  // namespace

TEST_CASE("Rows and columns have scales of their own, with either main loop", "[scales][emulated]") {
  for (const MainLoop main_loop : {MainLoop::sm80, MainLoop::sm90})
    pairs_are_right(GemmDevice::emulator(), GemmDevice::emulator(test_seed() % 1'000'000 + 1), main_loop);
}

TEST_CASE("Scaled tiles are split, swapped and batched", "[scales][emulated]") {
  GemmDevice device(GemmDevice::emulator(test_seed()));
  splits_and_swaps(device);
}

TEST_CASE("One row, one column, and whatever ends within a tile read no scale beyond their own", "[scales][emulated]") {
  GemmDevice device(GemmDevice::emulator());
  edges(device);
}

TEST_CASE("Products of integers become floating-point, scaled by values and by vectors", "[scales][emulated]") {
  GemmDevice device(GemmDevice::emulator(test_seed()));
  integers(device);
}

TEST_CASE("Blocks of 128 of k have scales of their own, with either main loop", "[scales][emulated]") {
  GemmDevice device(GemmDevice::emulator(test_seed()));
  scaled_blocks(device);
}

TEST_CASE("On a GPU, scales are what they are on the emulator", "[scales][gpu]") {
  if (cuda_devices().empty()) SKIP("no CUDA device");
  GemmDevice device(GemmDevice::cuda());
  const bool hopper = device.context().device().architecture == "sm_90a";
  if (!hopper) SKIP("no Hopper GPU");
  for (const MainLoop main_loop : {MainLoop::sm80, MainLoop::sm90})
    pairs_are_right(GemmDevice::cuda(), GemmDevice::cuda(), main_loop);
  splits_and_swaps(device);
  edges(device);
  integers(device);
  scaled_blocks(device);
}

TEST_CASE("Integers that become floating-point keep wgmma asynchronous with NVRTC", "[scales][nvrtc]") {
  const auto backend = nvrtc_for("sm_90a");
  if (!backend) SKIP(no_nvrtc);
  Problem problem{
      .m = 512, .n = 512, .k = 1024, .a = {.type = s8}, .b = {.type = s8, .layout = Layout::column_major}, .d = {bf16}};
  for (const char* config : {"sm90 128x128x128 stages=4 warps=8", "sm90 64x64x128 stages=4 warps=4 swap_ab=true",
                             "sm90 128x128x128 stages=4 warps=8 schedule=persistent grid=132",
                             "sm90 64x128x128 stages=4 warps=4 cluster=1x1x2"})
    for (const Scaling scaling : {Scaling::value, Scaling::vector}) {
      problem.a.scaling = problem.b.scaling = scaling;
      check_spills_nothing(*backend, normalise(problem), parse_kernel_config(config));
    }
}

TEST_CASE("A scale that is missed, or has changed places with its neighbour, is seen", "[scales][emulated]") {
  GemmDevice device(GemmDevice::emulator());
  for (const MainLoop main_loop : {MainLoop::sm80, MainLoop::sm90})
    for (const DataType d : {bf16, f32, e4m3}) {
      const GemmCase gemm = plain_case(problem_of(35, 43, 200, e4m3, d), tile_of(main_loop));
      GemmInputs inputs = make_inputs(gemm, Fill::normal, test_seed());
      make_neighbours_differ(inputs);
      const std::vector<char> out = device.run(gemm, inputs);
      CAPTURE(to_string(gemm), test_seed());
      REQUIRE(check(gemm, inputs, out) == "");
      for (std::vector<float> GemmInputs::* const scales : {&GemmInputs::scales_a, &GemmInputs::scales_b})
        for (std::size_t i = 0; i + 1 < (inputs.*scales).size(); i += 3) {
          GemmInputs missed = inputs, swapped = inputs;
          (missed.*scales)[i] = 1;
          std::swap((swapped.*scales)[i], (swapped.*scales)[i + 1]);
          CHECK_THAT(check(gemm, missed, out), ContainsSubstring("wrong"));
          CHECK_THAT(check(gemm, swapped, out), ContainsSubstring("wrong"));
        }
    }
}

TEST_CASE("A block's scale that is missed, or has changed places with its neighbour, is seen", "[scales][emulated]") {
  GemmDevice device(GemmDevice::emulator());
  for (const char* config : {"sm80 64x64x64 stages=3 warps=4 schedule=data_parallel",
                             "sm90 64x64x128 stages=3 warps=4 schedule=data_parallel",
                             "sm90 256x112x128 stages=2 warps=8 schedule=data_parallel",
                             "sm90 192x32x128 stages=2 warps=8 consumers=ping_pong schedule=persistent grid=1"})
    for (const auto& how : blocks) {
      Problem problem = problem_of(135, 140, 300, e4m3, f32);
      scale(problem, how);
      const GemmCase gemm = plain_case(problem, parse_kernel_config(config));
      GemmInputs inputs = make_inputs(gemm, Fill::normal, test_seed());
      make_neighbours_differ(inputs);
      const std::vector<char> out = device.run(gemm, inputs);
      CAPTURE(to_string(gemm), test_seed());
      REQUIRE(check(gemm, inputs, out) == "");
      for (const auto& [scales, scaling, rows] :
           {std::tuple{&GemmInputs::scales_a, how[0], problem.m}, {&GemmInputs::scales_b, how[1], problem.n}}) {
        // The first and the last of each block of k.
        const std::int64_t ld = scale_ld(scaling, rows, problem.k), count = scaling == squares ? 2 : rows;
        for (std::int64_t k_block = 0; k_block < 3; ++k_block)
          for (const std::int64_t row : {std::int64_t{0}, count - 1}) {
            const auto i = std::size_t(scaling == squares ? row * ld + k_block : k_block * ld + row);
            GemmInputs missed = inputs, swapped = inputs;
            (missed.*scales)[i] = 1;
            std::swap((swapped.*scales)[i], (swapped.*scales)[i > 0 ? i - 1 : i + 1]);
            CAPTURE(i, scaling == squares);
            CHECK_THAT(check(gemm, missed, out), ContainsSubstring("wrong"));
            CHECK_THAT(check(gemm, swapped, out), ContainsSubstring("wrong"));
          }
      }
    }
}

TEST_CASE("NaN, infinity and zero scale their own row and column alone", "[scales][emulated]") {
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  GemmDevice device(GemmDevice::emulator());
  for (const MainLoop main_loop : {MainLoop::sm80, MainLoop::sm90}) {
    const GemmCase gemm = plain_case(problem_of(20, 24, 64, e4m3, f32), tile_of(main_loop));
    GemmInputs inputs = make_inputs(gemm, Fill::normal, test_seed());
    inputs.scales_a[3] = nan;
    inputs.scales_a[5] = infinity;
    inputs.scales_b[7] = 0;
    inputs.scales_b[9] = -infinity;
    const std::vector<char> d = device.run(gemm, inputs);
    CAPTURE(to_string(gemm), test_seed());
    for (std::int64_t row = 0; row < 20; ++row)
      for (std::int64_t column = 0; column < 24; ++column) {
        const double x = element(gemm, d, row, column);
        CAPTURE(row, column, x);
        if (row == 3 || (row == 5 && column == 7))
          CHECK(std::isnan(x));
        else if (row == 5 || column == 9)
          CHECK((std::isinf(x) || std::isnan(x)));  // NaN of a sum of 0
        else
          CHECK((column == 7 ? x == 0 : std::isfinite(x)));
      }
  }
}

TEST_CASE("Where nothing is multiplied, vectors of scales are not read", "[scales][emulated]") {
  GemmDevice device(GemmDevice::emulator());
  std::vector<GemmCase> cases;
  for (GemmCase gemm : cases_without_product()) {
    gemm.config.block_k *= 2;
    Problem problem = gemm.problem;
    problem.a = {e4m3};
    problem.b = {e4m3};
    scale(problem, sides[0]);
    cases.push_back(plain_case(problem, gemm.config));
  }
  run_all({&device}, cases);  // with scales of NaN

  Problem problem = problem_of(16, 16, 0, e4m3, f32);
  problem.beta = 2;
  const std::vector<float> c(16 * 16, 3);
  std::vector<float> d(16 * 16, -1);
  device.context().gemm(problem, {.c = c.data(), .d = d.data()});
  CHECK(d == std::vector<float>(16 * 16, 6));
}

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
