#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "catch.hpp"
#include "context_fixtures.hpp"
#include "core/groups.hpp"
#include "core/kernel_interface.hpp"
#include "core/operands.hpp"
#include "errors.hpp"
#include "group_cases.hpp"
#include "jitgemm/jitgemm.hpp"

// Groups whose B lies where pointers on the device say.

using namespace jitgemm;
using namespace jitgemm::test;
using namespace jitgemm::test::groups;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::array configs{
    "sm80 64x64x32 group_m=8 stages=3 warps=4 schedule=persistent grid=3",
    "sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=persistent grid=3",
    "sm90 128x80x64 group_m=2 stages=2 warps=8 schedule=persistent grid=2",
    "sm90 64x32x64 group_m=8 stages=3 warps=8 consumers=ping_pong schedule=persistent grid=2",
    "sm90 64x16x64 group_m=8 stages=3 warps=4 swap_ab=true schedule=persistent grid=3",
    "sm90 64x32x64 group_m=8 stages=3 warps=4 cluster=2x1x1 schedule=persistent grid=4",
    "sm90 64x32x64 group_m=8 stages=3 warps=4 cluster=2x2x1 swap_ab=true schedule=persistent grid=4",
};

Case by_pointers(Case one) {
  one.problem.b.batch_mode = BatchMode::pointers;
  return one;
}

/// Both loops, both sides of the product, groups with and without rows, matrices apart from each other.
void ways_to_b(TestDevice& device, Random& random) {
  says_broken(device);
  for (const char* const text : configs) {
    const KernelConfig config = parse_kernel_config(text);
    for (const Layout layout : {Layout::column_major, Layout::row_major}) {
      const std::vector<std::int32_t> sizes{0, 1, 64, 65, 0, 128 + random.between(1, 63), 3};
      const Case one =
          by_pointers({.problem = problem_of(8 * random.between(1, 17), 8 * random.between(1, 20), sizes, layout),
                       .table = ends_of(sizes),
                       .config = &config});
      CAPTURE(text, to_string(one.problem));
      CHECK(run(device, one, random) == "");
      CHECK(run(device, with_counts(one, sizes, random.between(0, 5)), random) == "");
    }
  }
  CHECK_FALSE(says_broken(device));
}

/// One group, more than a warp reads at once, and all types of either loop, as they are chosen.
void as_chosen(TestDevice& device, Random& random) {
  for (const int groups : {1, 5, 300}) {
    std::vector<std::int32_t> sizes;
    for (int g = 0; g < groups; ++g) sizes.push_back(random.between(0, groups > 5 ? 3 : 40));
    Case one = by_pointers({.problem = problem_of(24, 40, sizes, Layout::column_major), .table = ends_of(sizes)});
    one.compares_with_dense = groups <= 5;
    CAPTURE(groups, to_string(one.problem));
    CHECK(run(device, one, random) == "");
  }
  for (const DataType type : {f16, tf32, f32, f64, s8, e4m3})
    for (const int pad : {0, 1}) {
      const std::vector<std::int32_t> sizes{random.between(1, 50), 0, random.between(1, 50)};
      const DataType d = default_output(type);
      const Case one = by_pointers(
          {.problem = problem_of(random.between(1, 90), random.between(1, 70), sizes, Layout::column_major, type, d),
           .table = ends_of(sizes),
           .pad = pad});
      CAPTURE(to_string(one.problem), pad);
      CHECK(run(device, one, random) == "");
    }
  // Aligned to less than TMA asks for, which the problem says.
  const std::vector<std::int32_t> sizes{33, 20};
  Case one = by_pointers({.problem = problem_of(24, 40, sizes, Layout::column_major), .table = ends_of(sizes)});
  one.problem.b.alignment = 4;
  CHECK(device.context.plan(one.problem).config.main_loop == MainLoop::sm80);
  CHECK(run(device, one, random) == "");
}

void scales_of_blocks(TestDevice& device, Random& random) {
  for (const char* const text :
       {"sm90 128x128x128 group_m=8 stages=2 warps=8 schedule=persistent grid=2",
        "sm90 128x32x128 group_m=8 stages=3 warps=4 swap_ab=true schedule=persistent grid=2"}) {
    const KernelConfig config = parse_kernel_config(text);
    const std::vector<std::int32_t> sizes{70, 0, 3, 131};
    Case one = by_pointers({.problem = problem_of(144, 320, sizes, Layout::column_major, e4m3, bf16),
                            .table = ends_of(sizes),
                            .config = &config});
    one.problem.a.scaling = Scaling::block_1x128;
    one.problem.b.scaling = Scaling::block_128x128;
    CAPTURE(text);
    CHECK(run(device, one, random) == "");
  }
}

/// Null, and between two multiples of 16 bytes: zeros, and nothing else is read.
void pointers_that_are_none(TestDevice& device, Random& random) {
  says_broken(device);
  for (const char* const text : {configs[0], configs[1], configs[4], configs[5]}) {
    const KernelConfig config = parse_kernel_config(text);
    const std::vector<std::int32_t> sizes{20, 70, 0, 33, 5};
    Case one = by_pointers(
        {.problem = problem_of(48, 80, sizes, Layout::column_major), .table = ends_of(sizes), .config = &config});
    one.compares_with_dense = false;
    one.problem.epilogue.bias = Bias::along_n;
    CAPTURE(text);
    one.without_b = {2};  // of a group without rows
    CHECK(run(device, one, random) == "");
    CHECK_FALSE(says_broken(device));
    for (const std::vector<std::int64_t>& without : {std::vector<std::int64_t>{1}, {0, 3}, {4, 1}}) {
      one.without_b = without;
      CHECK(run(device, one, random) == "");
      CHECK(says_broken(device));
      CHECK_FALSE(says_broken(device));
    }
  }
}

/// A tile counts once, whoever loads it, and where a cluster's other tiles lie outside of its group, those do not.
void tiles_without_b(TestDevice& device, Random& random) {
  const std::vector<std::int32_t> sizes{20, 70, 0, 33, 5};
  const std::int64_t n = 48;
  for (const char* const text : configs) {
    const KernelConfig config = parse_kernel_config(text);
    Case one = by_pointers(
        {.problem = problem_of(n, 80, sizes, Layout::column_major), .table = ends_of(sizes), .config = &config});
    one.compares_with_dense = false;
    one.without_b = {1, 2, 3};
    const auto tiles = [](std::int64_t extent, std::int64_t block) { return (extent + block - 1) / block; };
    const std::int64_t rows = config.swap_ab ? config.block_n : config.block_m,
                       columns = config.swap_ab ? config.block_m : config.block_n,
                       broken = (tiles(sizes[1], rows) + tiles(sizes[3], rows)) * tiles(n, columns);
    CAPTURE(text);
    CHECK(run(device, one, random) == "");
    CHECK_THAT(refusal(ErrorCode::invalid_operand, [&] { device.context.check(); }),
               ContainsSubstring(" for " + std::to_string(broken) + " tiles (the last: group ") &&
                   (ContainsSubstring("group 1)") || ContainsSubstring("group 3)")));
  }
}

/// Pairs of columns, each map of which has one group of them.
void gated_groups(TestDevice& device, Random& random) {
  for (const Pairing pairs : {Pairing::halves, Pairing::neighbours})
    for (const char* const text : {configs[0], configs[1], configs[4], configs[5]})
      for (const std::int64_t n : {64, 40}) {
        const KernelConfig config = parse_kernel_config(text);
        const EpilogueFunction function =
            parse_epilogue(std::string(gated::line_of(pairs)) +
                           "__device__ float epilogue(float x, float up, const Args&, Out&) { return 2 * x - up; }\n");
        const std::vector<std::int32_t> sizes{37, 0, 64, 5};
        Problem p = problem_of(n, 40, sizes, Layout::column_major, bf16, f32);
        p.b.batch_mode = BatchMode::pointers;
        p.epilogue.function = define_epilogue(function);
        const std::int64_t m = p.m, k = p.k, width = n / 2;
        const auto a = device.buffer(m * k, bf16, 0, &random), b = device.buffer(4 * n * k, bf16, 0, &random);
        const auto d = device.buffer(m * width, f32, 0xff, nullptr);
        const auto table = table_of(device, ends_of(sizes));
        const ApartB apart(device, normalise(p), b, n * k, n * k, {});
        Operands operands{.a = a.to_device(), .b = apart.on_device(), .d = d.to_device()};
        operands.group_rows = groups::on_device(table);
        device.context.gemm(p, operands, nullptr, config);
        device.wait();
        d.from_device();
        CAPTURE(text, to_string(p));
        int wrong = 0;
        for (std::int64_t g = 0, row = 0; g < 4; ++g)
          for (std::int64_t i = 0; i < sizes[std::size_t(g)]; ++i, ++row)
            for (std::int64_t j = 0; j < width; ++j) {
              const auto sum = [&](std::int64_t column) {
                double result = 0;
                for (std::int64_t at = 0; at < k; ++at)
                  result += load(a.host(), row * k + at, bf16) * load(b.host(), (g * n + column) * k + at, bf16);
                return result;
              };
              const bool halves = pairs == Pairing::halves;
              const double expected = 2 * sum(halves ? j : 2 * j) - sum(halves ? width + j : 2 * j + 1);
              wrong += load(d.host(), row * width + j, f32) != expected;
            }
        CHECK(wrong == 0);
      }
}

}  // namespace

TEST_CASE("Groups find each B by its pointer, in either loop, on the emulator", "[groups][pointers][emulator]") {
  for (const std::uint64_t seed : {std::uint64_t(0), test_seed()}) run_all_on(GemmDevice::emulator(seed), ways_to_b);
}

TEST_CASE("Pointers to B of every type, and to few and many, on the emulator", "[groups][pointers][emulator]") {
  run_all_on(GemmDevice::emulator(), as_chosen, scales_of_blocks);
}

TEST_CASE("Pointers to B that are none make zeros, and are told of, on the emulator", "[groups][pointers][emulator]") {
  run_all_on(GemmDevice::emulator(), pointers_that_are_none);
}

TEST_CASE("Each tile whose pointer to B is none counts once, on the emulator",
          "[groups][pointers][emulator][removal]") {
  run_all_on(GemmDevice::emulator(), tiles_without_b);
}

TEST_CASE("Gated groups find each B by its pointer, on the emulator", "[groups][pointers][emulator]") {
  run_all_on(GemmDevice::emulator(), gated_groups);
}

TEST_CASE("Pointers to B are of groups of rows alone", "[groups][pointers][errors]") {
  Problem p = problem_of(24, 40, {30, 3}, Layout::column_major);
  p.b.batch_mode = BatchMode::pointers;
  CHECK(to_string(parse_problem(to_string(p))) == to_string(p));
  CHECK(to_string(p).find("batch_mode_b=pointers") != std::string::npos);
  Problem packed = p;
  p.b.stride = 7;
  CHECK(equal(normalise(p), normalise(packed)));
  const auto refused = [](const Problem& problem) {
    try {
      normalise(problem);
    } catch (const Error& error) {
      return error.code() == ErrorCode::invalid_problem;
    }
    return false;
  };
  Problem none = packed, along_k = packed, of_a = packed, unknown = packed;
  none.grouping = Grouping::none;
  along_k.grouping = Grouping::along_k;
  of_a.a.batch_mode = BatchMode::pointers;
  unknown.b.batch_mode = BatchMode(7);
  for (const Problem& each : {none, along_k, of_a, unknown}) CHECK(refused(each));

  // The table is checked as other operands are.
  alignas(16) char memory[8192] = {};
  const std::int32_t ends[2] = {30, 33};
  Operands operands{.a = memory, .b = memory + 4, .d = memory + 4096};
  operands.group_rows = ends;
  CHECK_THROWS_WITH(with_operands(normalise(packed), operands), Catch::Contains("pointers to it"));
  operands.b = memory + 4096;
  CHECK_THROWS_WITH(with_operands(normalise(packed), operands), Catch::Contains("overlaps"));
}

TEST_CASE("Pointers to a B that nobody reads are not read either, on the emulator", "[groups][pointers][emulator]") {
  TestDevice device(GemmDevice::emulator());
  says_broken(device);
  for (const bool without_k : {false, true}) {
    Problem p = problem_of(24, without_k ? 0 : 40, {5, 3}, Layout::column_major, f32, f32);
    p.b.batch_mode = BatchMode::pointers;
    p.b.stride = -7;
    if (!without_k) p.alpha = 0;
    const auto d = device.buffer(8 * 24, f32, 0xff, nullptr);
    const auto table = table_of(device, {5, 8});
    Operands operands{.d = d.to_device()};
    operands.group_rows = groups::on_device(table);
    device.context.gemm(p, operands, nullptr);
    device.wait();
    d.from_device();
    for (std::int64_t i = 0; i < 8 * 24; ++i) REQUIRE(load(d.host(), i, f32) == 0);
    CHECK_FALSE(says_broken(device));
  }
}

TEST_CASE("A pointer's coordinates are its place behind the table, whichever comes first", "[groups][pointers]") {
  constexpr std::uint64_t table = 0x7f5f12000218;
  for (const std::uint64_t address :
       {std::uint64_t(16), std::uint64_t(0x7f5f12000200), std::uint64_t(0x7f5f12000210), std::uint64_t(0x7f5d10000010),
        std::uint64_t(0x1fffffffffff0), ~std::uint64_t(15)}) {
    const device::AddressPlace place = device::place_of_address(address, table);
    CAPTURE(address, place.low, place.high);
    CHECK(place.low >= 0);
    CHECK(place.high >= 0);
    CHECK(std::uint64_t(place.high) < device::HIGH_COUNT);
    CHECK(device::map_address(table) + std::uint64_t(place.low) * device::LOW_STEP +
              std::uint64_t(place.high) * device::HIGH_STEP ==
          address);
  }
  CHECK(device::place_of_address(0, table).high == -1);  // out of bounds
}

TEST_CASE("Groups by pointers are tuned as they are called", "[groups][pointers][tuning]") {
  const TemporaryDirectory cache;
  Context context(tuning_on_emulator(cache));
  Problem p = problem_of(64, 64, {30, 3, 40}, Layout::column_major);
  p.b.batch_mode = BatchMode::pointers;
  const TuneReport report = context.tune(p);
  int measured = 0;
  for (const TunedCandidate& candidate : report.candidates) measured += candidate.skipped.empty();
  for (const TunedCandidate& candidate : report.candidates) CHECK(candidate.skipped.find("wrong") == std::string::npos);
  CHECK(measured > 1);
  CHECK(context.plan(p).source == PlanSource::exact);
  CHECK(context.source(p).find("each B by a pointer") != std::string::npos);
}

TEST_CASE("Groups find each B by its pointer, on a GPU", "[groups][pointers][gpu]") {
  run_all_on_gpu(ways_to_b, as_chosen, scales_of_blocks, pointers_that_are_none, tiles_without_b, gated_groups);
}
