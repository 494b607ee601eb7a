// Scales of blocks of 128 of k in products of many matrices: groups of rows that the device counts, and batches.
#include <array>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "context_fixtures.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "gemm_cases.hpp"
#include "gemm_runs.hpp"
#include "group_cases.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "nvrtc.hpp"
#include "problem_refusal.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using namespace jitgemm::test::groups;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr Scaling rows_of_blocks = Scaling::block_1x128, squares = Scaling::block_128x128;

Problem scaled_problem(std::int64_t n, std::int64_t k, const std::vector<std::int32_t>& sizes, Scaling of_b = squares,
                       DataType d = bf16) {
  Problem problem = groups::problem_of(n, k, sizes, Layout::column_major, e4m3, d);
  problem.a.scaling = rows_of_blocks;
  problem.b.scaling = of_b;
  return problem;
}

Case by_offsets(const Problem& problem, const std::vector<std::int32_t>& sizes, const KernelConfig& config) {
  return {.problem = problem, .table = ends_of(sizes), .config = &config};
}

constexpr std::array configs{
    "sm80 64x64x128 group_m=8 stages=3 warps=4 schedule=persistent grid=3",
    "sm80 32x32x64 group_m=1 stages=2 warps=1 schedule=persistent grid=2",
    "sm90 64x32x128 group_m=8 stages=3 warps=4 schedule=persistent grid=3",
    "sm90 128x96x128 group_m=2 stages=2 warps=8 schedule=persistent grid=2",
    "sm90 192x64x128 group_m=8 stages=2 warps=12 schedule=persistent grid=2",
    "sm90 64x64x128 group_m=8 stages=2 warps=8 consumers=ping_pong schedule=persistent grid=2",
    "sm90 64x16x128 group_m=8 stages=3 warps=4 swap_ab=true schedule=persistent grid=3",
    "sm90 128x48x128 group_m=8 stages=2 warps=8 swap_ab=true schedule=persistent grid=2",
    "sm90 256x80x128 group_m=8 stages=2 warps=8 swap_ab=true schedule=persistent grid=3",
    "sm90 64x64x128 group_m=8 stages=4 warps=4 cluster=2x1x1 schedule=persistent grid=4",
    "sm90 64x32x128 group_m=8 stages=3 warps=4 cluster=2x2x1 swap_ab=true schedule=persistent grid=4",
    "sm90 256x112x128 group_m=8 stages=2 warps=8 schedule=persistent grid=2",
    "sm90 128x64x128 group_m=8 stages=4 warps=8 cluster=1x2x1 schedule=persistent grid=4",
    "sm90 192x32x128 group_m=8 stages=3 warps=12 cluster=2x1x1 schedule=persistent grid=4",
};

/// Groups that begin at each place within four rows, are empty, of one row, of a tile and a row, and end raggedly.
void ways_to_a_group(TestDevice& device, Random& random) {
  for (const char* const text : configs) {
    const KernelConfig config = parse_kernel_config(text);
    const int tile = config.swap_ab ? config.block_n : config.block_m;
    for (const Scaling of_b : {squares, rows_of_blocks}) {
      const std::vector<std::int32_t> sizes{1, 0, tile, tile + 1, 0, tile + random.between(1, tile - 1), 3};
      Case one = by_offsets(scaled_problem(16 * random.between(1, 18), 16 * random.between(1, 40), sizes, of_b), sizes,
                            config);
      one.problem.m += random.between(0, 6);  // rows of nobody's
      CAPTURE(text, to_string(one.problem));
      CHECK(run(device, one, random) == "");
      CHECK(run(device, with_counts(one, sizes, random.between(0, 5)), random) == "");
    }
  }
}

/// A group that leaves the last of three consumers half of its rows, or none.
void tails_of_consumers(TestDevice& device, Random& random) {
  const KernelConfig config =
      parse_kernel_config("sm90 384x80x128 group_m=8 stages=2 warps=12 cluster=1x2x1 schedule=persistent grid=4");
  const std::vector<std::int32_t> sizes{random.between(257, 320), random.between(129, 256), random.between(1, 64)};
  const Case one = by_offsets(scaled_problem(160, 16 * random.between(17, 40), sizes), sizes, config);
  CAPTURE(to_string(one.problem));
  CHECK(run(device, one, random) == "");
}

void epilogues_and_types(TestDevice& device, Random& random) {
  const KernelConfig plain = parse_kernel_config(configs[2]), swapped = parse_kernel_config(configs[6]);
  for (const KernelConfig* const config : {&plain, &swapped})
    for (const DataType d : {f16, f32, e4m3}) {
      const std::vector<std::int32_t> sizes{5, 70, 0, 30, 2};
      Case one = by_offsets(scaled_problem(144, 272, sizes, squares, d), sizes, *config);
      one.problem.b.type = d == f32 ? e5m2 : e4m3;
      one.problem.beta = d == e4m3 ? 0 : -0.5;
      one.problem.epilogue = {.bias = Bias::along_n, .activation = Activation::relu};
      if (d == e4m3) one.scales[2] = 0.25f;
      CAPTURE(to_string(one.problem), to_string(*config));
      CHECK(run(device, one, random) == "");
      CHECK(run(device, with_counts(one, sizes, 3), random) == "");
    }
  // As the model chooses, also where TMA cannot address A.
  for (const int pad : {0, 1}) {
    const std::vector<std::int32_t> sizes{5, 70, 0, 30, 2};
    Case one{.problem = scaled_problem(136, 130, sizes), .table = ends_of(sizes), .pad = pad};
    CHECK(run(device, one, random) == "");
    CHECK(run(device, with_counts(one, sizes, 1), random) == "");
  }
}

/// Ends and counts that no routing has.
void hostile_tables(TestDevice& device, Random& random) {
  says_broken(device);
  for (const std::size_t which : {0, 2, 6}) {
    const KernelConfig config = parse_kernel_config(configs[which]);
    for (const Grouping grouping : {Grouping::offsets, Grouping::counts})
      for (const auto& table : broken_tables) {
        Case one = by_offsets(scaled_problem(40, 144, {26, 26, 26, 26, 26}), {}, config);
        one.table = table;
        one.problem.grouping = grouping;
        if (grouping == Grouping::counts) one.problem.m = 65;
        one.compares_with_dense = false;
        CAPTURE(configs[which], to_string(one.problem), table);
        CHECK(run(device, one, random) == "");
        CHECK(says_broken(device));
      }
  }
}

void batches(GemmDevice& device) {
  std::vector<GemmCase> cases;
  for (const char* text : {"sm90 64x96x128 stages=3 warps=4 schedule=persistent grid=3",
                           "sm90 64x48x128 stages=3 warps=4 swap_ab=true schedule=split_k splits=2",
                           "sm90 128x64x128 stages=3 warps=8 cluster=2x1x1 schedule=stream_k grid=4",
                           "sm80 64x64x128 stages=3 warps=4 schedule=data_parallel",
                           "sm80 32x64x64 stages=3 warps=4 schedule=split_k splits=2"})
    for (const Scaling of_a : {rows_of_blocks, squares})
      for (const Scaling of_b : {rows_of_blocks, squares})
        for (const bool shared : {false, true}) {
          Problem problem{.m = 135,
                          .n = 150,
                          .k = 300,
                          .batch = 3,
                          .a = {.type = e4m3, .scaling = of_a},
                          .b = {.type = e4m3, .layout = Layout::column_major, .scaling = of_b},
                          .d = {f32}};
          if (shared) problem.b.stride = 0;  // one B, and so one set of its scales
          cases.push_back(plain_case(problem, parse_kernel_config(text)));
        }
  Problem packed = cases.back().problem;
  packed.a.layout = Layout::column_major;
  packed.a.ld = packed.b.ld = packed.d.ld = 0;
  packed.a.stride = packed.b.stride = packed.d.stride = packed_stride;
  cases.push_back(plain_case(
      packed, parse_kernel_config("sm90 64x64x128 stages=3 warps=4 pack=ab schedule=data_parallel"), {1, 1, 16, 16}));
  device.compile(cases);
  run_all({&device}, cases);
}

}  // namespace

TEST_CASE("Groups have scales of blocks, wherever they begin, on the emulator", "[groups][scales][emulator]") {
  for (const std::uint64_t seed : {std::uint64_t(0), test_seed()})
    run_all_on(GemmDevice::emulator(seed), ways_to_a_group, tails_of_consumers);
}

TEST_CASE("Scaled groups of other types, with epilogues, on the emulator", "[groups][scales][emulator]") {
  run_all_on(GemmDevice::emulator(), epilogues_and_types);
}

TEST_CASE("Tables out of range read no scale out of range, on the emulator", "[groups][scales][emulator]") {
  run_all_on(GemmDevice::emulator(), hostile_tables);
}

TEST_CASE("A batch's matrices have scales of blocks of their own", "[scales][emulated]") {
  GemmDevice device(GemmDevice::emulator(test_seed()));
  batches(device);
}

TEST_CASE("A batch with scales of blocks is measured, and called as it was", "[scales][emulated]") {
  const TemporaryDirectory cache;
  Context context(briefly_tuning(cache));
  Problem problem{.m = 40,
                  .n = 144,
                  .k = 256,
                  .batch = 2,
                  .a = {.type = e4m3, .scaling = rows_of_blocks},
                  .b = {.type = e4m3, .layout = Layout::column_major, .scaling = squares},
                  .d = {f32}};
  const KernelConfig best = context.tune(problem).plan.config;
  CHECK(context.counters().tuned == 1);
  CHECK(context.plan(problem).config == best);
  GemmDevice device(GemmDevice::emulator());
  CHECK(run_and_check(device, plain_case(problem, best), Fill::normal, test_seed()) == "");
}

TEST_CASE("A group's scale that is missed, or a k-block that is dropped, is seen", "[groups][scales][emulator]") {
  TestDevice device(GemmDevice::emulator());
  for (const std::size_t which : {0, 2, 6}) {
    const KernelConfig config = parse_kernel_config(configs[which]);
    const std::vector<std::int32_t> sizes{3, 34, 0, 17};
    for (const Scaling of_b : {squares, rows_of_blocks}) {
      Case one = by_offsets(scaled_problem(144, 400, sizes, of_b, f32), sizes, config);
      one.compares_with_dense = false;
      Random random(test_seed());
      CAPTURE(test_seed(), configs[which], to_string(one.problem));
      REQUIRE(run(device, one, random) == "");
      const NormalProblem p = normalise(one.problem);
      const std::int64_t ld = scale_ld(p.a.scaling, p.m, p.k);
      for (const std::int64_t k_block : {0, 1, 3})
        for (const std::int64_t row : {0, 2, 3, 36, 37, 53}) {  // the first and the last of each group
          Case missed = one;
          missed.missed_a = k_block * ld + row;
          CAPTURE(k_block, row);
          CHECK_THAT(run(device, missed, random), ContainsSubstring("wrong"));
        }
      for (const std::int64_t group : {0, 1, 3}) {
        Case missed = one;
        missed.missed_b = (group + 1) * scale_stride_b(p) - 1;  // of the last k-block and columns
        if (of_b == rows_of_blocks) missed.missed_b = group * scale_stride_b(p) + 3 * p.n + 7;
        CAPTURE(group);
        CHECK_THAT(run(device, missed, random), ContainsSubstring("wrong"));
      }
    }
  }
}

TEST_CASE("Scales of blocks that groups do not have are refused", "[groups][scales][problem]") {
  Problem p = scaled_problem(64, 256, {100, 28});
  CHECK(problem_refusal(p) == "no error");
  p.a.scaling = squares;
  CHECK_THAT(problem_refusal(p),
             ContainsSubstring("groups begin at any row") && ContainsSubstring("scaling_a = block_1x128"));
  p.a.scaling = Scaling::vector;
  CHECK_THAT(problem_refusal(p), ContainsSubstring("for both"));
  Problem large{.m = 1 << 20,
                .n = 1 << 20,
                .k = 1 << 20,
                .batch = 0x7fffffff,
                .a = {.type = e4m3, .stride = 1, .scaling = squares}};
  large.b = {.type = e4m3, .layout = Layout::column_major, .stride = 1, .scaling = squares};
  large.d = {.type = bf16};
  CHECK_THAT(problem_refusal(large), ContainsSubstring("the scales of all matrices are larger"));
}

TEST_CASE("NVRTC makes kernels of scaled groups without spills", "[groups][scales][nvrtc]") {
  const auto backend = nvrtc_for("sm_90a");
  if (!backend) SKIP(no_nvrtc);
  for (const char* config : {"sm90 64x128x128 group_m=8 stages=5 warps=4 schedule=persistent grid=132",
                             "sm90 128x128x128 group_m=8 stages=5 warps=8 schedule=persistent grid=132",
                             "sm90 128x128x128 group_m=8 stages=5 warps=8 cluster=2x1x1 schedule=persistent grid=132",
                             "sm90 64x16x128 group_m=8 stages=8 warps=4 swap_ab=true schedule=persistent grid=132",
                             "sm90 64x48x128 group_m=8 stages=8 warps=4 swap_ab=true schedule=persistent grid=132",
                             "sm90 128x128x128 group_m=8 stages=5 warps=8 swap_ab=true schedule=persistent grid=132",
                             "sm90 256x96x128 group_m=8 stages=4 warps=8 swap_ab=true schedule=persistent grid=132",
                             "sm90 256x128x128 group_m=8 stages=3 warps=8 schedule=persistent grid=132",
                             "sm90 256x112x128 group_m=8 stages=4 warps=8 schedule=persistent grid=132",
                             "sm90 128x128x128 group_m=8 stages=5 warps=4 schedule=persistent grid=132"})
    for (const Grouping grouping : {Grouping::offsets, Grouping::counts}) {
      Problem p = scaled_problem(4096, 7168, {4096, 4096});
      p.grouping = grouping;
      check_spills_nothing(*backend, normalise(p), parse_kernel_config(config));
    }
}

TEST_CASE("NVRTC makes kernels of groups that are promoted without scales of blocks", "[groups][scales][nvrtc]") {
  const auto backend = nvrtc_for("sm_90a");
  if (!backend) SKIP(no_nvrtc);
  for (const char* config : {"sm90 64x16x128 group_m=8 stages=8 warps=4 swap_ab=true schedule=persistent grid=132",
                             "sm90 64x48x128 group_m=8 stages=8 warps=4 swap_ab=true schedule=persistent grid=132",
                             "sm90 64x64x128 group_m=8 stages=8 warps=4 swap_ab=true schedule=persistent grid=132",
                             "sm90 128x64x128 group_m=8 stages=8 warps=8 swap_ab=true schedule=persistent grid=132",
                             "sm90 64x96x128 group_m=8 stages=5 warps=4 swap_ab=true schedule=persistent grid=132",
                             "sm90 128x96x128 group_m=8 stages=5 warps=8 swap_ab=true schedule=persistent grid=132",
                             "sm90 128x64x128 group_m=8 stages=8 warps=8 schedule=persistent grid=132"})
    for (const Scaling scaling : {Scaling::value, Scaling::vector}) {
      Problem p = scaled_problem(4096, 7168, {4096, 4096});
      p.a.scaling = p.b.scaling = scaling;
      p.accumulation = Accumulation::promoted;
      check_spills_nothing(*backend, normalise(p), parse_kernel_config(config));
    }
}

TEST_CASE("Groups have scales of blocks, wherever they begin, on a GPU", "[groups][scales][gpu]") {
  run_all_on_gpu(ways_to_a_group);
}
TEST_CASE("Scaled groups leave consumers tails, on a GPU", "[groups][scales][gpu]") {
  run_all_on_gpu(tails_of_consumers);
}
TEST_CASE("Scaled groups of other types, with epilogues, on a GPU", "[groups][scales][gpu]") {
  run_all_on_gpu(epilogues_and_types);
}
TEST_CASE("Tables out of range read no scale out of range, on a GPU", "[groups][scales][gpu]") {
  run_all_on_gpu(hostile_tables);
}
TEST_CASE("A batch's matrices have scales of blocks of their own, on a GPU", "[scales][gpu]") {
  if (const std::string why = why_no_hopper(); !why.empty()) SKIP(why);
  GemmDevice device(GemmDevice::cuda());
  batches(device);
}
