// Kernels of groups of rows that the device counts, on the emulator and on a GPU.
#include <array>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/problem.hpp"
#include "gemm_cases.hpp"
#include "group_cases.hpp"
#include "group_memory.hpp"
#include "nvrtc.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using namespace jitgemm::test::groups;

namespace {

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
    "sm90 64x48x64 group_m=8 stages=3 warps=4 cluster=4x1x1 swap_ab=true schedule=persistent grid=4",
    "sm90 256x32x64 group_m=8 stages=2 warps=8 schedule=persistent grid=2",
    "sm90 128x32x64 group_m=8 stages=2 warps=4 schedule=persistent grid=2",
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
      CHECK(run(device, with_counts(one, sizes, random.between(0, 5)), random) == "");
    }
  }
}

void numbers_of_groups(TestDevice& device, Random& random) {
  const KernelConfig config =
      parse_kernel_config("sm90 64x16x64 group_m=8 stages=3 warps=4 swap_ab=true schedule=persistent grid=3");
  for (const int groups : {1, 5, 33, 300, 4096}) {
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
  says_broken(device);
  for (const char* const text : few) {
    const KernelConfig config = parse_kernel_config(text);
    for (const Grouping grouping : {Grouping::offsets, Grouping::counts})
      for (const auto& table : broken_tables) {
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
  // In each window of a table, in a run and where one begins, also where one block of a cluster scans for all.
  for (const auto& [text, at] :
       {std::pair(configs[2], 0), std::pair(configs[2], 3), std::pair(configs[2], 4), std::pair(configs[2], 127),
        std::pair(configs[2], 128), std::pair(configs[2], 255), std::pair(configs[2], 256), std::pair(configs[2], 299),
        std::pair(configs[12], 0), std::pair(configs[12], 131), std::pair(configs[12], 299)}) {
    std::vector<std::int32_t> sizes(300, 2);
    const KernelConfig config = parse_kernel_config(text);
    Case one{.problem = problem_of(16, 16, sizes, Layout::column_major), .table = ends_of(sizes), .config = &config};
    one.table[std::size_t(at)] = at == 0 ? 1000 : 1;
    one.compares_with_dense = false;
    CAPTURE(text, at);
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
          CHECK(run(device, with_counts(vectors, sizes, 3), random) == "");
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
        CHECK(run(device, with_counts(one, sizes, 2), random) == "");
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
        if (by_counts) one = with_counts(one, sizes, 3);
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

TEST_CASE("A group's rows come out as those of a GEMM of it alone, by every way to D, on the emulator",
          "[groups][emulator]") {
  for (const std::uint64_t seed : {std::uint64_t(0), test_seed()}) run_all_on(GemmDevice::emulator(seed), ways_to_d);
}

TEST_CASE("Groups, however many and of whatever sizes, on the emulator", "[groups][emulator]") {
  run_all_on(GemmDevice::emulator(), numbers_of_groups);
}

TEST_CASE("Tables that go backwards or out of range write nothing else, and are told of, on the emulator",
          "[groups][emulator]") {
  run_all_on(GemmDevice::emulator(), hostile_tables);
}

TEST_CASE("Groups of every type, with epilogues and scales, on the emulator", "[groups][emulator]") {
  run_all_on(GemmDevice::emulator(), types_and_epilogues);
}

TEST_CASE("Groups as the model chooses, and where TMA stores nothing, on the emulator", "[groups][emulator]") {
  run_all_on(GemmDevice::emulator(), as_chosen);
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
  RecordedGroups call(device, problem, random);
  for (int replay = 0; replay < 20; ++replay) {
    std::vector<std::int32_t> sizes{random.between(0, 20), random.between(0, 20), random.between(0, 20)};
    const std::vector<std::int32_t> ends = ends_of(sizes);
    call.replay(ends);
    for (std::int64_t row = 0, group = 0; row < m; ++row) {
      while (group < 3 && row >= ends[std::size_t(group)]) ++group;
      for (std::int64_t column = 0; column < n; ++column) {
        double sum = 0;
        for (std::int64_t i = 0; group < 3 && i < k; ++i)
          sum += load(call.a.host(), row * k + i, bf16) * load(call.b.host(), (group * n + column) * k + i, bf16);
        const double got = load(call.d.host(), row * n + column, bf16);
        if (group < 3 ? got != gated::rounded(sum, bf16) : got == got) FAIL("replay " << replay << ", row " << row);
      }
    }
  }
}

TEST_CASE("Epilogues of one's own, of pairs too, know their group, on the emulator", "[groups][emulator]") {
  run_all_on(GemmDevice::emulator(), epilogues_of_ones_own);
}

TEST_CASE("NVRTC makes kernels of groups without spills", "[groups][cuda]") {
  const auto backend = nvrtc_for("sm_90a");
  if (!backend) SKIP(no_nvrtc);
  for (const char* const config :
       {"sm90 128x256x64 group_m=8 stages=4 warps=8 cluster=2x1x1 schedule=persistent grid=132",
        "sm90 256x128x64 group_m=8 stages=4 warps=8 cluster=1x2x1 schedule=persistent grid=132",
        "sm90 192x128x64 group_m=8 stages=4 warps=12 schedule=persistent grid=132",
        "sm90 128x152x64 group_m=8 stages=4 warps=8 swap_ab=true consumers=ping_pong schedule=persistent grid=132",
        "sm90 256x16x64 group_m=4 stages=5 warps=8 cluster=2x1x1 swap_ab=true schedule=persistent grid=132"})
    for (const Grouping grouping : {Grouping::offsets, Grouping::counts}) {
      Problem p = problem_of(4096, 4096, {4096, 4096}, Layout::column_major);
      p.grouping = grouping;
      for (const BatchMode mode : {BatchMode::strided, BatchMode::pointers}) {
        p.b.batch_mode = mode;
        check_spills_nothing(*backend, normalise(p), parse_kernel_config(config));
      }
    }
}

TEST_CASE("Groups reach D in every way, on a GPU", "[groups][gpu]") { run_all_on_gpu(ways_to_d); }
TEST_CASE("Groups are few, many, empty and as chosen, on a GPU", "[groups][gpu]") {
  run_all_on_gpu(numbers_of_groups, as_chosen);
}
TEST_CASE("Tables of groups that are broken write nothing out of bounds, on a GPU", "[groups][gpu]") {
  run_all_on_gpu(hostile_tables);
}
TEST_CASE("Groups of every type, with epilogues and scales, on a GPU", "[groups][gpu]") {
  run_all_on_gpu(types_and_epilogues);
}
TEST_CASE("Epilogues of one's own know their group, on a GPU", "[groups][gpu]") {
  run_all_on_gpu(epilogues_of_ones_own);
}
