// Groups of rows that the device counts, on the emulator and on a GPU.
#include <array>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "c_context.hpp"
#include "catch.hpp"
#include "context_fixtures.hpp"
#include "context_internals.hpp"
#include "core/problem.hpp"
#include "gemm_cases.hpp"
#include "group_cases.hpp"
#include "jitgemm/error.hpp"
#include "problem_refusal.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using namespace jitgemm::test::groups;
using Catch::Matchers::ContainsSubstring;

namespace {

Problem problem_of(std::int64_t n, std::int64_t k, const std::vector<std::int32_t>& sizes, Layout layout_b,
                   DataType type = bf16, DataType d = bf16) {
  Problem problem{.n = n, .k = k, .batch = std::int64_t(sizes.size()), .a = {type}, .b = {type, layout_b}, .d = {d}};
  problem.grouping = Grouping::offsets;
  problem.m = std::accumulate(sizes.begin(), sizes.end(), std::int64_t(0));
  return problem;
}

/// The same groups by counts, in matrices of some rows more than the largest has.
Case groups_by_counts(Case one, const std::vector<std::int32_t>& sizes, int spare) {
  one.problem.grouping = Grouping::counts;
  one.problem.m = *std::max_element(sizes.begin(), sizes.end()) + spare;
  one.table = sizes;
  return one;
}

std::vector<std::int32_t> drawn_sizes(Random& random, int groups, int most) {
  std::vector<std::int32_t> sizes;
  for (int i = 0; i < groups; ++i) sizes.push_back(random.between(0, 2) == 0 ? 0 : random.between(1, most));
  return sizes;
}

// Every way that rows of a tile go from memory to D.
const std::array configs{
    "sm80 64x64x32 group_m=8 stages=3 warps=4 schedule=persistent grid=3",
    "sm80 32x32x64 group_m=1 stages=2 warps=1 schedule=persistent grid=2",
    "sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=persistent grid=3",
    "sm90 128x80x64 group_m=2 stages=2 warps=8 schedule=persistent grid=2",
    "sm90 128x192x64 group_m=0 stages=2 warps=8 schedule=persistent grid=2",
    "sm90 192x64x64 group_m=8 stages=2 warps=12 schedule=persistent grid=2",
    "sm90 64x32x64 group_m=8 stages=3 warps=8 consumers=ping_pong schedule=persistent grid=2",
    "sm90 64x16x64 group_m=8 stages=3 warps=4 swap_ab=true schedule=persistent grid=3",
    "sm90 128x24x64 group_m=8 stages=2 warps=8 swap_ab=true schedule=persistent grid=2",
    "sm90 128x72x64 group_m=2 stages=2 warps=4 swap_ab=true schedule=persistent grid=2",
    "sm90 64x64x64 group_m=8 stages=4 warps=4 cluster=2x1x1 schedule=persistent grid=4",
    "sm90 64x32x64 group_m=8 stages=3 warps=4 cluster=1x2x1 schedule=persistent grid=4",
    "sm90 64x32x64 group_m=8 stages=3 warps=4 cluster=2x2x1 swap_ab=true schedule=persistent grid=4",
};

void ways_to_d(TestDevice& device, Random& random) {
  for (const char* const text : configs) {
    const KernelConfig config = parse_kernel_config(text);
    const int tile = config.swap_ab ? config.block_n : config.block_m;
    for (const Layout layout : {Layout::column_major, Layout::row_major}) {
      // Empty, one row, a whole tile, one row more, several tiles and a ragged end.
      std::vector<std::int32_t> sizes{0, 1, tile, tile + 1, 0, 2 * tile + random.between(1, tile - 1), 3};
      const Case one{.problem = problem_of(8 * random.between(1, 17), 8 * random.between(1, 20), sizes, layout),
                     .table = ends_of(sizes),
                     .config = &config};
      CAPTURE(text, to_string(one.problem));
      CHECK(run(device, one, random) == "");
      CHECK(run(device, groups_by_counts(one, sizes, random.between(0, 5)), random) == "");
    }
  }
}

void numbers_of_groups(TestDevice& device, Random& random) {
  const KernelConfig config =
      parse_kernel_config("sm90 64x16x64 group_m=8 stages=3 warps=4 swap_ab=true schedule=persistent grid=3");
  for (const int groups : {1, 5, 33, 300}) {
    for (const int shape : {0, 1, 2}) {
      std::vector<std::int32_t> sizes = drawn_sizes(random, groups, groups > 33 ? 3 : 40);
      if (shape == 1) {  // all rows in one group
        std::fill(sizes.begin(), sizes.end(), 0);
        sizes[random.next() % sizes.size()] = 150;
      }
      Case one{.problem = problem_of(24, 40, sizes, Layout::column_major), .table = ends_of(sizes), .config = &config};
      if (shape == 2) one.problem.m += 77;  // beyond the last end
      one.compares_with_dense = groups < 33;
      CAPTURE(groups, shape, to_string(one.problem));
      CHECK(run(device, one, random) == "");
    }
  }
}

/// Ends that no routing has: nothing but groups' rows, as documented, is written, and check() says so.
void hostile_tables(TestDevice& device, Random& random) {
  const std::array<const char*, 3> few{configs[0], configs[2], configs[7]};
  const std::vector<std::vector<std::int32_t>> tables{
      {90, 40, 120, 20, 70},              // backwards
      {-5, 30, -2147483647 - 1, 60, 90},  // negative
      {10, 200, 50, 2147483647, 130},     // past M
      {-1, -1, -1, -1, -1},
      {2147483647, 0, 2147483647, 0, 2147483647},
  };
  says_broken(device);
  for (const char* const text : few) {
    const KernelConfig config = parse_kernel_config(text);
    for (const Grouping grouping : {Grouping::offsets, Grouping::counts})
      for (const auto& table : tables) {
        Case one{.problem = problem_of(40, 24, {26, 26, 26, 26, 26}, Layout::column_major),
                 .table = table,
                 .config = &config};
        one.problem.grouping = grouping;
        if (grouping == Grouping::counts) one.problem.m = 65;
        one.compares_with_dense = false;
        CAPTURE(text, to_string(one.problem), table);
        CHECK(run(device, one, random) == "");
        CHECK(says_broken(device));
        CHECK_FALSE(says_broken(device));
      }
    Case one{.problem = problem_of(40, 24, {26, 26, 26, 26, 26}, Layout::column_major),
             .table = {0, 50, 50, 130, 130},
             .config = &config};
    CHECK(run(device, one, random) == "");
    CHECK_FALSE(says_broken(device));
  }
  // In a table of several windows, in each of them.
  for (const std::size_t at : {std::size_t(0), std::size_t(31), std::size_t(32), std::size_t(63), std::size_t(69)}) {
    std::vector<std::int32_t> sizes(70, 2);
    const KernelConfig config = parse_kernel_config(configs[2]);
    Case one{.problem = problem_of(16, 16, sizes, Layout::column_major), .table = ends_of(sizes), .config = &config};
    one.table[at] = at == 0 ? 1000 : 1;
    one.compares_with_dense = false;
    CAPTURE(at);
    CHECK(run(device, one, random) == "");
    CHECK(says_broken(device));
  }
}

void types_and_epilogues(TestDevice& device, Random& random) {
  struct Types {
    DataType a, b, d;
  };
  for (const bool swaps : {false, true})
    for (const Types types :
         {Types{f16, f16, f16}, Types{bf16, bf16, f32}, Types{e4m3, e5m2, bf16}, Types{e4m3, e4m3, e4m3},
          Types{e5m2, e4m3, f32}, Types{tf32, tf32, f32}, Types{s8, s8, bf16}}) {
      const std::vector<std::int32_t> sizes = drawn_sizes(random, 6, 90);
      const int size = int(size_of(types.a));
      Case one{.problem = problem_of(16 * random.between(1, 9), 16 * random.between(1, 20), sizes, Layout::column_major,
                                     types.a, types.d),
               .table = ends_of(sizes)};
      one.problem.b.type = types.b;
      KernelConfig config =
          parse_kernel_config(swaps ? "sm90 64x48x64 group_m=8 stages=3 warps=4 swap_ab=true schedule=persistent grid=2"
                                    : "sm90 64x48x64 group_m=8 stages=3 warps=4 schedule=persistent grid=2");
      config.block_k = 128 / size;
      one.config = &config;
      one.problem.beta = types.d == e4m3 ? 0 : 0.5;
      one.problem.epilogue = {.bias = random.pick(std::array{Bias::along_n, Bias::along_m}),
                              .activation = random.pick(std::array{Activation::relu, Activation::silu})};
      if (size == 1) {
        one.scales = {0.5f, 1.25f, types.d == e4m3 ? 0.75f : 0};
        if (random.between(0, 1) == 0) one.problem.accumulation = Accumulation::promoted;
      }
      CAPTURE(to_string(one.problem), to_string(config));
      CHECK(run(device, one, random) == "");
      if (size == 1) {
        for (const int which : {1, 2, 3}) {
          Case vectors = one;
          if (which & 1) vectors.problem.a.scaling = Scaling::vector;
          if (which & 2) vectors.problem.b.scaling = Scaling::vector;
          CAPTURE(to_string(vectors.problem));
          CHECK(run(device, vectors, random) == "");
          CHECK(run(device, groups_by_counts(vectors, sizes, 3), random) == "");
        }
      }
    }
}

/// What TMA cannot address, as the model chooses, and the portable loop's types.
void as_chosen(TestDevice& device, Random& random) {
  for (const Layout layout : {Layout::column_major, Layout::row_major})
    for (const DataType type : {bf16, f32, f64})
      for (const int pad : {0, 1, 4}) {
        const std::vector<std::int32_t> sizes = drawn_sizes(random, 7, 50);
        Case one{.problem = problem_of(random.between(1, 90), random.between(1, 70), sizes, layout, type, type),
                 .table = ends_of(sizes),
                 .pad = pad};
        CAPTURE(to_string(one.problem), pad);
        CHECK(run(device, one, random) == "");
        CHECK(run(device, groups_by_counts(one, sizes, 2), random) == "");
      }
  // D alone out of TMA's reach.
  const KernelConfig config = parse_kernel_config(configs[7]), plain = parse_kernel_config(configs[3]);
  for (const KernelConfig* const each : {&config, &plain})
    for (const int n : {37, 38, 44}) {
      const std::vector<std::int32_t> sizes = drawn_sizes(random, 5, 80);
      const Case one{
          .problem = problem_of(n, 48, sizes, Layout::column_major), .table = ends_of(sizes), .config = each};
      CAPTURE(to_string(one.problem), to_string(*each));
      CHECK(run(device, one, random) == "");
    }
  // Nothing to multiply.
  const std::vector<std::int32_t> sizes{3, 0, 40};
  Case empty{.problem = problem_of(20, 0, sizes, Layout::column_major), .table = ends_of(sizes)};
  CHECK(run(device, empty, random) == "");
}

}  // namespace

TEST_CASE("A group's rows come out as those of a GEMM of it alone, by every way to D, on the emulator",
          "[groups][emulator]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  for (const std::uint64_t seed : {std::uint64_t(0), test_seed()}) {
    TestDevice device(GemmDevice::emulator(seed));
    ways_to_d(device, random);
  }
}

TEST_CASE("Groups, however many and of whatever sizes, on the emulator", "[groups][emulator]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  TestDevice device(GemmDevice::emulator());
  numbers_of_groups(device, random);
}

TEST_CASE("Tables that go backwards or out of range write nothing else, and are told of, on the emulator",
          "[groups][emulator]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  TestDevice device(GemmDevice::emulator());
  hostile_tables(device, random);
}

TEST_CASE("Groups of every type, with epilogues and scales, on the emulator", "[groups][emulator]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  TestDevice device(GemmDevice::emulator());
  types_and_epilogues(device, random);
}

TEST_CASE("Groups as the model chooses, and where TMA stores nothing, on the emulator", "[groups][emulator]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  TestDevice device(GemmDevice::emulator());
  as_chosen(device, random);
}

TEST_CASE("One kernel serves all sizes of an expectation, and a table that changes between its launches",
          "[groups][emulator]") {
  TestDevice device(GemmDevice::emulator());
  Random random(test_seed());
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  std::set<std::string> configs, sources;
  for (const int rows : {40, 90, 300, 777}) {
    Case one{.problem = problem_of(48, 40, {rows}, Layout::column_major), .table = {}, .compares_with_dense = false};
    one.problem.batch = 9;
    one.problem.expected_m = 30;
    std::vector<std::int32_t> sizes(9, rows / 12);
    sizes[4] = rows - 8 * (rows / 12);
    one.table = ends_of(sizes);
    CHECK(run(device, one, random) == "");
    configs.insert(to_string(device.context.plan(one.problem).config));
    sources.insert(device.context.source(one.problem));
  }
  CHECK(configs.size() == 1);
  CHECK(sources.size() == 1);

  // A graph's replay is the same launch again: the same arguments, another table.
  constexpr std::int64_t m = 64, n = 16, k = 16;
  Problem problem = problem_of(n, k, {m}, Layout::column_major);
  problem.batch = 3;
  const auto a = device.buffer(m * k, bf16, 0, &random), b = device.buffer(3 * n * k, bf16, 0, &random);
  const auto d = device.buffer(m * n, bf16, 0xff, nullptr);
  const auto table = device.buffer(3, s32, 0, nullptr);
  Operands operands{.a = a.host(), .b = b.host(), .d = d.host()};
  operands.group_rows = reinterpret_cast<const std::int32_t*>(table.host());
  Backend& backend = ContextInternals::backend(device.context);
  const auto recording = backend.record([&](Stream stream) { device.context.gemm(problem, operands, stream); });
  for (int replay = 0; replay < 20; ++replay) {
    std::vector<std::int32_t> sizes{random.between(0, 20), random.between(0, 20), random.between(0, 20)};
    const std::vector<std::int32_t> ends = ends_of(sizes);
    std::memcpy(table.host(), ends.data(), 12);
    std::memset(d.host(), 0xff, std::size_t(m * n * 2));
    recording->replay(nullptr);
    for (std::int64_t row = 0, group = 0; row < m; ++row) {
      while (group < 3 && row >= ends[std::size_t(group)]) ++group;
      for (std::int64_t column = 0; column < n; ++column) {
        double sum = 0;
        for (std::int64_t i = 0; group < 3 && i < k; ++i)
          sum += load(a.host(), row * k + i, bf16) * load(b.host(), (group * n + column) * k + i, bf16);
        const double got = load(d.host(), row * n + column, bf16);
        if (group < 3 ? got != gated::rounded(sum, bf16) : got == got) FAIL("replay " << replay << ", row " << row);
      }
    }
  }
}

TEST_CASE("What no kernel does with groups is refused, and says what to do", "[groups][problem]") {
  const Problem problem = problem_of(64, 64, {100, 28}, Layout::column_major);
  const auto why = [](const Problem& p) { return problem_refusal(ErrorCode::invalid_problem, [&p] { normalise(p); }); };
  CHECK(why(problem) == "no error");
  Problem p = problem;
  p.a.layout = Layout::column_major;
  CHECK_THAT(why(p), ContainsSubstring("give a row-major A"));
  p = problem;
  p.expected_m = -1;
  CHECK_THAT(why(p), ContainsSubstring("expected_m = -1"));
  p = problem;
  p.grouping = Grouping(9);
  CHECK_THAT(why(p), ContainsSubstring("unknown grouping: use none, offsets, counts or along_k"));

  TestDevice device(GemmDevice::emulator());
  const auto refusal = [&](const char* config) {
    return problem_refusal(ErrorCode::invalid_config,
                           [&] { device.context.plan(problem, parse_kernel_config(config)); });
  };
  for (const char* const schedule : {"data_parallel", "split_k splits=2", "stream_k grid=3"})
    CHECK_THAT(refusal((std::string("sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=") + schedule).c_str()),
               ContainsSubstring("groups, whose tiles the device counts, are persistent"));
  CHECK_THAT(refusal("sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=persistent grid=3 pack=a"),
             ContainsSubstring("no operands of groups are packed"));
  CHECK_THAT(problem_refusal(ErrorCode::invalid_operand,
                             [&] {
                               std::vector<char> memory(1 << 16);
                               device.context.gemm(
                                   problem,
                                   {.a = memory.data(), .b = memory.data() + 20000, .d = memory.data() + 40000});
                             }),
             ContainsSubstring("group_rows is null"));
}

TEST_CASE("A problem with groups is its text, and what does not matter is left out", "[groups][problem]") {
  Problem p = problem_of(64, 64, {100, 28}, Layout::column_major);
  p.expected_m = 20;
  const NormalProblem normal = normalise(p);
  CHECK(normal.expected_m == 24);  // a power of two, or half as much again
  CHECK(normal.a.stride == 0);
  CHECK(normal.d.stride == 0);
  CHECK(normal.b.stride == 64 * 64);
  CHECK(to_string(p) ==
        "m=128 n=64 k=64 a=bf16 b=bf16 d=bf16 layout_b=column_major batch=2 grouping=offsets expected_m=20");
  CHECK(equal(normalise(parse_problem(to_string(normal))), normal));
  p.a.stride = 5;
  CHECK(equal(normalise(p), normal));
  p.grouping = Grouping::none;
  p.a.stride = packed_stride;
  CHECK(normalise(p).expected_m == 0);
  CHECK(to_string(p).find("expected_m") == std::string::npos);
}

TEST_CASE("Tiles are chosen by what groups are expected to have", "[groups][plan]") {
  ContextOptions options;
  options.device = Device::compile_only;
  options.architecture = "sm_90a";
  options.tuning = Tuning::off;
  Context context(options);
  const auto chosen = [&](std::int64_t m, std::int64_t groups, std::int64_t expected) {
    Problem p = problem_of(4096, 7168, {}, Layout::column_major);
    p.m = m, p.batch = groups, p.expected_m = expected;
    return context.plan(p);
  };
  // No tile has many more rows than a group; few rows are the MMA's columns.
  for (const std::int64_t rows : {1, 8, 16, 24, 48}) {
    const Plan plan = chosen(256 * rows, 256, 0);
    CAPTURE(rows, to_string(plan.config));
    CHECK(plan.config.main_loop == MainLoop::sm90);
    CHECK(plan.config.schedule == Schedule::persistent);
    const KernelConfig& c = plan.config;
    CHECK((c.swap_ab || rows > 24));
    CHECK((c.swap_ab ? c.block_n * c.cluster_n : c.block_m * c.cluster_m) <= std::max<std::int64_t>(16, 2 * rows));
    CHECK_THAT(plan.explain(), ContainsSubstring("256 by offsets"));
  }
  // Many: 256 x 128 or as much.
  const KernelConfig many = chosen(8 * 8192, 8, 0).config;
  CHECK(many.block_m * many.block_n >= 128 * 128);
  // What is expected counts, not what there may be.
  CHECK(chosen(4096, 256, 8).config == chosen(400, 256, 8).config);
  CHECK(chosen(4096, 256, 8).config == chosen(4096, 256, 7).config);
  // A row of fewer groups than there are: the bytes of those that have rows.
  CHECK(chosen(8, 256, 1).predicted.memory_us < 0.1 * chosen(256, 256, 1).predicted.memory_us);
}

TEST_CASE("The C functions multiply groups, and say what their table was", "[groups][c][emulator]") {
  const TemporaryDirectory cache;
  const CContext context(emulator_options(cache));
  jitgemm_problem problem = made_by<jitgemm_problem>(jitgemm_problem_init);
  problem.m = 6, problem.n = 8, problem.k = 16, problem.batch = 2;
  problem.grouping = JITGEMM_GROUPING_OFFSETS;
  const std::vector<std::uint16_t> a(6 * 16, 0x3c00), b(2 * 16 * 8, 0x3c00);  // 1.0
  std::vector<std::uint16_t> d(6 * 8, 0xffff);
  std::vector<std::int32_t> ends{2, 5};
  jitgemm_operands operands = made_by<jitgemm_operands>(jitgemm_operands_init);
  operands.a = a.data(), operands.b = b.data(), operands.d = d.data(), operands.group_rows = ends.data();
  REQUIRE(jitgemm_gemm(context, &problem, nullptr, &operands, nullptr) == JITGEMM_STATUS_SUCCESS);
  CHECK(jitgemm_check(context, nullptr) == JITGEMM_STATUS_SUCCESS);
  for (std::size_t i = 0; i < d.size(); ++i) CHECK(d[i] == (i < 5 * 8 ? 0x4c00 : 0xffff));  // 16.0
  ends = {4, 3};
  REQUIRE(jitgemm_gemm(context, &problem, nullptr, &operands, nullptr) == JITGEMM_STATUS_SUCCESS);
  CHECK(jitgemm_check(context, nullptr) == JITGEMM_STATUS_INVALID_OPERAND);
  CHECK(jitgemm_check(context, nullptr) == JITGEMM_STATUS_SUCCESS);
}

namespace {

/// With sums of small integers, so that they and what the function makes of them are exact.
void epilogues_of_ones_own(TestDevice& device, Random& random) {
  for (const Pairing pairs : {Pairing::none, Pairing::halves, Pairing::neighbours})
    for (const Grouping grouping : {Grouping::offsets, Grouping::counts})
      for (const char* const text : {configs[0], configs[2], configs[7], configs[9]}) {
        const KernelConfig config = parse_kernel_config(text);
        const bool gated = pairs != Pairing::none, by_counts = grouping == Grouping::counts;
        const EpilogueFunction function = parse_epilogue(
            std::string(gated ? gated::line_of(pairs) : "") +
            "// operand in bias along_n f32\n// operand in residual matrix bf16\n// operand out before matrix f32\n"
            "__device__ float epilogue(float x, " +
            (gated ? "float up, " : "") + "const Args& args, Out& out) {\n" + (gated ? "  x = 2 * x - up;\n" : "") +
            "  out.before = x;\n  return x + args.bias + args.residual + float(args.row + 3 * args.batch);\n}\n");
        const std::vector<std::int32_t> sizes{37, 0, 64, 5};
        Case one{.problem = problem_of(64, 40, sizes, Layout::column_major, bf16, f32), .table = ends_of(sizes)};
        if (by_counts) one = groups_by_counts(one, sizes, 3);
        Problem& p = one.problem;
        p.epilogue.function = define_epilogue(function);
        const std::int64_t m = p.m, n = p.n, k = p.k, width = gated ? n / 2 : n, of_rows = by_counts ? 4 : 1;
        const auto a = device.buffer(m * of_rows * k, bf16, 0, &random), b = device.buffer(4 * n * k, bf16, 0, &random);
        const auto bias = device.buffer(4 * width, f32, 0, &random);
        const auto residual = device.buffer(m * of_rows * width, bf16, 0, &random);
        const auto d = device.buffer(m * of_rows * width, f32, 0xff, nullptr);
        const auto before = device.buffer(m * of_rows * width, f32, 0xff, nullptr);
        const auto table = device.buffer(4, s32, 0, nullptr);
        std::memcpy(table.host(), one.table.data(), 16);
        EpilogueValue values[3];
        values[0].in = bias.to_device(), values[0].stride = width;  // each group's own
        values[1].in = residual.to_device();
        values[2].out = before.to_device();
        Operands operands{.a = a.to_device(), .b = b.to_device(), .d = d.to_device()};
        operands.group_rows = reinterpret_cast<const std::int32_t*>(table.to_device());
        operands.epilogue = values;
        operands.epilogue_count = 3;
        device.context.gemm(p, operands, nullptr, config);
        device.wait();
        d.from_device(), before.from_device();
        CAPTURE(text, to_string(p));
        const std::vector<GroupRows> rows = rows_of(p, one.table);
        std::vector<bool> seen(std::size_t(m * of_rows));
        int wrong = 0;
        for (std::int64_t g = 0; g < 4; ++g)
          for (std::int64_t row = rows[std::size_t(g)].begin; row < rows[std::size_t(g)].end; ++row) {
            const std::int64_t at = row + (by_counts ? g * m : 0);
            seen[std::size_t(at)] = true;
            const auto sum = [&](std::int64_t column) {
              double result = 0;
              for (std::int64_t i = 0; i < k; ++i)
                result += load(a.host(), at * k + i, bf16) * load(b.host(), (g * n + column) * k + i, bf16);
              return result;
            };
            for (std::int64_t j = 0; j < width; ++j) {
              double x = sum(!gated ? j : pairs == Pairing::halves ? j : 2 * j);
              if (gated) x = 2 * x - sum(pairs == Pairing::halves ? width + j : 2 * j + 1);
              wrong += load(before.host(), at * width + j, f32) != x;
              x += load(bias.host(), g * width + j, f32) + load(residual.host(), at * width + j, bf16) +
                   double(row + 3 * g);
              wrong += load(d.host(), at * width + j, f32) != x;
            }
          }
        for (std::int64_t at = 0; at < m * of_rows; ++at)
          for (std::int64_t j = 0; !seen[std::size_t(at)] && j < width; ++j)
            for (const auto* buffer : {&d, &before}) {
              const double left = load(buffer->host(), at * width + j, f32);
              wrong += left == left;
            }
        CHECK(wrong == 0);
      }
}

}  // namespace

TEST_CASE("Epilogues of one's own, of pairs too, know their group, on the emulator", "[groups][emulator]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  TestDevice device(GemmDevice::emulator());
  epilogues_of_ones_own(device, random);
}

TEST_CASE("NVRTC makes kernels of groups without spills", "[groups][cuda]") {
  ContextOptions options;
  options.device = Device::compile_only;
  options.architecture = "sm_90a";
  options.tuning = Tuning::off;
  const TemporaryDirectory cache;
  options.cache_dir = cache.path().string();
  Context context(options);
  for (const char* const config :
       {"sm90 128x256x64 group_m=8 stages=4 warps=8 cluster=2x1x1 schedule=persistent grid=132",
        "sm90 256x128x64 group_m=8 stages=4 warps=8 cluster=1x2x1 schedule=persistent grid=132",
        "sm90 192x128x64 group_m=8 stages=4 warps=12 schedule=persistent grid=132",
        "sm90 128x152x64 group_m=8 stages=4 warps=8 swap_ab=true consumers=ping_pong schedule=persistent grid=132",
        "sm90 256x16x64 group_m=4 stages=5 warps=8 cluster=2x1x1 swap_ab=true schedule=persistent grid=132"})
    for (const Grouping grouping : {Grouping::offsets, Grouping::counts}) {
      Problem p = problem_of(4096, 4096, {4096, 4096}, Layout::column_major);
      p.grouping = grouping;
      try {
        const Plan plan = context.compile(p, parse_kernel_config(config));
        CAPTURE(config, to_string(p));
        CHECK(plan.spill_bytes == 0);
        CHECK(plan.registers > 0);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::no_compiler) throw;
        SKIP("no NVRTC: tools/bootstrap installs it");
      }
    }
}

TEST_CASE("Groups are as on the emulator, on a GPU", "[groups][gpu]") {
  if (cuda_devices().empty()) SKIP("no CUDA device");
  TestDevice device(GemmDevice::cuda());
  if (device.context.device().architecture != "sm_90a") SKIP("these configurations are Hopper's");
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  ways_to_d(device, random);
  numbers_of_groups(device, random);
  hostile_tables(device, random);
  types_and_epilogues(device, random);
  as_chosen(device, random);
  epilogues_of_ones_own(device, random);
}
