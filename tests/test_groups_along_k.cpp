// Groups along k: one A and one B, of which the device tells each group's part, and a D for each.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "along_k_cases.hpp"
#include "backend/backend.hpp"
#include "c_context.hpp"
#include "catch.hpp"
#include "context_fixtures.hpp"
#include "context_internals.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "gemm_cases.hpp"
#include "group_cases.hpp"
#include "group_memory.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "nvrtc.hpp"
#include "problem_refusal.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using namespace jitgemm::test::along_k;
using Catch::Matchers::ContainsSubstring;
using jitgemm::test::groups::broken_tables;
using jitgemm::test::groups::ends_of;
using jitgemm::test::groups::RecordedGroups;
using jitgemm::test::groups::run_all_on;
using jitgemm::test::groups::run_all_on_gpu;
using jitgemm::test::groups::says_broken;

namespace {

constexpr std::array configs{
    "sm80 64x64x32 group_m=8 stages=3 warps=4 schedule=persistent grid=3",
    "sm80 32x32x64 group_m=1 stages=2 warps=1 schedule=persistent grid=2",
    "sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=persistent grid=3",
    "sm90 128x80x64 group_m=2 stages=2 warps=8 schedule=persistent grid=2",
    "sm90 192x64x64 group_m=8 stages=2 warps=12 schedule=persistent grid=2",
    "sm90 64x32x64 group_m=8 stages=3 warps=8 consumers=ping_pong schedule=persistent grid=2",
    "sm90 128x24x64 group_m=8 stages=2 warps=8 swap_ab=true schedule=persistent grid=2",
    "sm90 64x64x64 group_m=8 stages=4 warps=4 cluster=2x1x1 schedule=persistent grid=4",
    "sm90 64x32x64 group_m=8 stages=3 warps=4 cluster=2x2x1 swap_ab=true schedule=persistent grid=4",
    "sm90 64x32x64 group_m=8 stages=2 warps=8 cluster=1x2x1 consumers=ping_pong schedule=persistent grid=4",
    "sm90 64x16x64 group_m=8 stages=13 warps=4 schedule=persistent grid=1",  // its stages hold three tiles
};
constexpr std::array<std::array<Layout, 2>, 4> layouts{
    {{columns, rows}, {rows, columns}, {rows, rows}, {columns, columns}}};

bool is_hopper(const KernelConfig& config) { return config.main_loop == MainLoop::sm90; }

/// Empty, one element, a whole k-block, one more, several and a ragged end; none may see the next one's NaN.
void ways_to_a_group(TestDevice& device, Random& random) {
  for (const char* const text : configs) {
    const KernelConfig config = parse_kernel_config(text);
    for (const auto& [layout_a, layout_b] : layouts) {
      std::vector<std::int32_t> sizes{0, 1, 64, 65, 0, 7, 3 * 64 + random.between(1, 63), 19, 8};
      sizes.back() += 8 - std::accumulate(sizes.begin(), sizes.end(), 0) % 8;  // so that TMA addresses rows of k
      KCase one{.problem = problem_of(8 * random.between(1, 20), 8 * random.between(1, 12), sizes, bf16, f32, layout_a,
                                      layout_b),
                .table = ends_of(sizes),
                .config = &config};
      one.problem.k += 16;  // of nobody's
      CAPTURE(text, to_string(one.problem));
      CHECK(run(device, one, random) == "");
      one.nan_group = random.between(1, 2) + 5;
      one.problem.beta = 1;
      CAPTURE(one.nan_group);
      CHECK(run(device, one, random) == "");
    }
  }
}

void types_and_epilogues(TestDevice& device, Random& random) {
  struct Types {
    DataType type, d;
  };
  for (const bool hopper : {false, true})
    for (const Types types : {Types{f16, f16}, Types{bf16, bf16}, Types{tf32, f32}, Types{e4m3, bf16}, Types{e5m2, f32},
                              Types{s8, bf16}, Types{f32, f32}, Types{f64, f64}}) {
      if (hopper && size_of(types.type) > 2 && types.type != tf32) continue;
      const std::vector<std::int32_t> sizes{33, 0, 150, 5, 4};
      const int size = int(size_of(types.type));
      KernelConfig config =
          parse_kernel_config(hopper ? "sm90 64x48x64 group_m=8 stages=3 warps=4 schedule=persistent grid=2"
                                     : "sm80 32x32x64 group_m=8 stages=3 warps=4 schedule=persistent grid=2");
      config.block_k = 128 / size;
      const bool along_rows = hopper && size != 2;  // as wgmma has it of all types but those of 16 bits
      KCase one{.problem = problem_of(80, 96, sizes, types.type, types.d, along_rows ? rows : columns,
                                      along_rows ? columns : rows),
                .table = ends_of(sizes),
                .config = &config};
      one.problem.k = 208;
      one.problem.beta = 0.5;
      one.problem.epilogue = {.bias = random.pick(std::array{Bias::along_n, Bias::along_m}),
                              .activation = random.pick(std::array{Activation::relu, Activation::none})};
      if (size == 1) {
        one.problem.a.scaling = one.problem.b.scaling = Scaling::vector;
        if (random.between(0, 1) == 0) one.problem.accumulation = Accumulation::promoted;
      }
      CAPTURE(to_string(one.problem), to_string(config));
      CHECK(run(device, one, random) == "");
      if (types.type == s8) continue;
      one.nan_group = 2;
      CHECK(run(device, one, random) == "");
    }
}

/// As the model chooses, where TMA loads, and where it cannot.
void as_chosen(TestDevice& device, Random& random) {
  for (const auto& [layout_a, layout_b] : layouts)
    for (const int pad : {0, 1}) {
      const std::vector<std::int32_t> sizes{30, 0, 70, 1};
      KCase one{
          .problem = problem_of(random.between(1, 90), random.between(1, 90), sizes, bf16, bf16, layout_a, layout_b),
          .table = ends_of(sizes),
          .pad = pad};
      CAPTURE(to_string(one.problem), pad);
      CHECK(run(device, one, random) == "");
    }
  for (const std::vector<std::int32_t>& sizes : {std::vector<std::int32_t>{33}, {0}, {}}) {
    KCase one{.problem = problem_of(20, 24, sizes), .table = ends_of(sizes)};
    one.problem.k = 40;
    CAPTURE(to_string(one.problem));
    CHECK(run(device, one, random) == "");
  }
  // Nothing to multiply: D is beta C, whatever the table says of k.
  for (const double alpha : {1.0, 0.0}) {
    const std::vector<std::int32_t> sizes{0, 0, 0};
    KCase one{.problem = problem_of(24, 40, sizes), .table = sizes};
    one.problem.beta = 2;
    one.problem.alpha = alpha;
    if (alpha == 0) one.problem.k = 48, one.table = {16, 16, 48};
    CAPTURE(to_string(one.problem));
    CHECK(run(device, one, random) == "");
    CHECK_FALSE(says_broken(device));
  }
}

void hostile_tables(TestDevice& device, Random& random) {
  says_broken(device);
  for (const std::size_t which : {0, 2, 6, 8, 10}) {
    const KernelConfig config = parse_kernel_config(configs[which]);
    for (const auto& table : broken_tables) {
      for (const bool along_rows : {false, true}) {
        KCase one{.problem = problem_of(40, 72, {26, 26, 26, 26, 32}, bf16, f32, along_rows ? rows : columns,
                                        along_rows ? columns : rows),
                  .table = table,
                  .config = &config};
        CAPTURE(configs[which], table, along_rows);
        CHECK(run(device, one, random) == "");
        CHECK(says_broken(device));
        CHECK_FALSE(says_broken(device));
      }
    }
    // In the third window of a table, of which the last tile's group is in the fourth.
    KCase one{.problem = problem_of(8, 8, std::vector<std::int32_t>(100, 2)), .table = {}, .config = &config};
    one.table = ends_of(std::vector<std::int32_t>(100, 2));
    CHECK(run(device, one, random) == "");
    CHECK_FALSE(says_broken(device));
    one.table[70] = 1;
    CHECK(run(device, one, random) == "");
    CHECK(says_broken(device));
  }
}

}  // namespace

TEST_CASE("Groups along k begin and end anywhere, on the emulator", "[groups][along_k][emulator]") {
  for (const std::uint64_t seed : {std::uint64_t(0), test_seed()})
    run_all_on(GemmDevice::emulator(seed), ways_to_a_group);
}

TEST_CASE("Groups along k of every type, with epilogues and scales, on the emulator", "[groups][along_k][emulator]") {
  run_all_on(GemmDevice::emulator(), types_and_epilogues);
}

TEST_CASE("Groups along k as the model chooses, and without anything to multiply, on the emulator",
          "[groups][along_k][emulator]") {
  run_all_on(GemmDevice::emulator(), as_chosen);
}

TEST_CASE("Tables along k that go backwards or out of range are told of, on the emulator",
          "[groups][along_k][emulator]") {
  run_all_on(GemmDevice::emulator(), hostile_tables);
}

TEST_CASE("An element of k that a group misses is seen", "[groups][along_k][emulator]") {
  TestDevice device(GemmDevice::emulator());
  const std::vector<std::int32_t> sizes{1, 200, 0, 64};
  for (const std::size_t which : {0, 2}) {
    const KernelConfig config = parse_kernel_config(configs[which]);
    KCase one{.problem = problem_of(24, 40, sizes), .table = ends_of(sizes), .config = &config};
    Random random(test_seed());
    CAPTURE(configs[which], test_seed());
    CHECK(run(device, one, random) == "");
    for (const int group : {0, 1, 3}) {
      one.missed_group = group;
      CHECK_THAT(run(device, one, random), ContainsSubstring("wrong"));
    }
  }
}

TEST_CASE("A replayed launch along k reads the table as it is then", "[groups][along_k][emulator]") {
  TestDevice device(GemmDevice::emulator());
  Random random(test_seed());
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  constexpr std::int64_t m = 16, n = 24, k = 80, groups = 3;
  RecordedGroups call(device, problem_of(m, n, {k, 0, 0}), random);
  for (int replay = 0; replay < 10; ++replay) {
    const std::vector<std::int32_t> ends =
        ends_of({random.between(0, 30), random.between(0, 20), random.between(0, 30)});
    call.replay(ends);
    int wrong = 0;
    for (std::int64_t g = 0; g < groups; ++g)
      for (std::int64_t i = 0; i < m * n; ++i) {
        double sum = 0;  // of small integers, exact
        for (std::int64_t at = g == 0 ? 0 : ends[std::size_t(g) - 1]; at < ends[std::size_t(g)]; ++at)
          sum += load(call.a.host(), at * m + i / n, bf16) * load(call.b.host(), at * n + i % n, bf16);
        wrong += load(call.d.host(), g * m * n + i, f32) != sum;
      }
    CAPTURE(replay, ends);
    CHECK(wrong == 0);
  }
}

TEST_CASE("What no kernel does with groups along k is refused, and says what to do", "[groups][along_k][problem]") {
  const auto why = [](const Problem& p) { return problem_refusal(ErrorCode::invalid_problem, [&p] { normalise(p); }); };
  const Problem problem = problem_of(64, 64, {100, 28});
  CHECK(why(problem) == "no error");
  Problem p = problem_of(64, 64, {100, 28}, e4m3, bf16, rows, columns);
  p.a.scaling = p.b.scaling = Scaling::block_1x128;
  CHECK_THAT(why(p), ContainsSubstring("groups along k begin anywhere in a block of k"));
  for (Matrix* matrix : {&p.a, &p.b}) {
    p = problem;
    matrix->stride = 4096;
    CHECK_THAT(why(p), ContainsSubstring("groups along k are parts of one matrix"));
  }
  p = problem;
  p.epilogue.function = define_epilogue(parse_epilogue("// pairs halves\n" + gated::difference.text));
  CHECK_THAT(why(p), ContainsSubstring("no kernel of groups along k takes pairs of columns"));
  TestDevice device(GemmDevice::emulator());
  CHECK_THAT(problem_refusal(ErrorCode::invalid_config,
                             [&] {
                               device.context.plan(
                                   problem,
                                   parse_kernel_config("sm90 64x32x64 stages=3 warps=4 schedule=data_parallel"));
                             }),
             ContainsSubstring("are persistent"));
  const Problem k_major = problem_of(64, 64, {100, 27}, bf16, f32, rows, columns);
  CHECK_THAT(problem_refusal(ErrorCode::invalid_config,
                             [&] { device.context.plan(k_major, parse_kernel_config(configs[2])); }),
             ContainsSubstring("A is aligned to 2 bytes"));
}

TEST_CASE("Groups along k have a kernel on every device, with k or without", "[groups][along_k][plan]") {
  const jitgemm::test::TemporaryDirectory cache;
  for (const char* const architecture : {"sm_80", "sm_90a"}) {
    Context context(jitgemm::test::compile_only(cache, architecture));
    for (const auto& [layout_a, layout_b] : layouts)
      for (const std::int64_t k : {0, 48, 4096}) {
        Problem p = problem_of(24, 40, {0, 0, 0}, bf16, f32, layout_a, layout_b);
        p.k = k, p.beta = 2;
        CAPTURE(architecture, to_string(p));
        const bool hopper = k > 0 && std::string(architecture) == "sm_90a";
        CHECK(is_hopper(context.plan(p).config) == hopper);
      }
  }
}

TEMPLATE_TEST_CASE("Groups along k reach a call", "[groups][along_k][c][emulator]", Context, CContext) {
  TestType context(GemmDevice::emulator());
  const std::vector<std::uint16_t> ones(64 * 16, 0x3f80);  // of bf16
  std::vector<float> d(2 * 16 * 8, -1);
  const std::array<std::int32_t, 2> ends{10, 50};
  Problem p = problem_of(16, 8, {10, 40});
  Operands operands{.a = ones.data(), .b = ones.data(), .d = d.data()};
  operands.group_rows = ends.data();
  context.gemm(p, operands);
  CHECK(std::all_of(d.begin(), d.begin() + 128, [](float x) { return x == 10; }));
  CHECK(std::all_of(d.begin() + 128, d.end(), [](float x) { return x == 40; }));
}

TEST_CASE("NVRTC makes kernels of groups along k without spills", "[groups][along_k][nvrtc]") {
  const auto backend = nvrtc_for("sm_90a");
  if (!backend) SKIP(no_nvrtc);
  for (const char* config :
       {"sm90 64x128x64 group_m=8 stages=6 warps=4 schedule=persistent grid=132",
        "sm90 128x128x64 group_m=8 stages=5 warps=8 schedule=persistent grid=132",
        "sm90 128x256x64 group_m=8 stages=4 warps=8 cluster=2x1x1 schedule=persistent grid=132",
        "sm90 128x128x64 group_m=8 stages=5 warps=8 consumers=ping_pong schedule=persistent grid=132",
        "sm90 64x64x64 group_m=8 stages=6 warps=4 swap_ab=true schedule=persistent grid=132"})
    for (const DataType d : {f32, bf16}) {
      KernelConfig its = parse_kernel_config(config);
      check_spills_nothing(*backend, normalise(problem_of(4096, 7168, {4096, 4096}, bf16, d)), its);
      its.block_k = 128;
      Problem k_major = problem_of(4096, 7168, {4096, 4096}, e4m3, d, rows, columns);
      if (d == f32 && its.block_n < 256) k_major.accumulation = Accumulation::promoted;
      check_spills_nothing(*backend, normalise(k_major), its);
    }
}

TEST_CASE("Groups along k are as on the emulator, on a GPU", "[groups][along_k][gpu]") {
  run_all_on_gpu(ways_to_a_group, types_and_epilogues, as_chosen, hostile_tables);
}
