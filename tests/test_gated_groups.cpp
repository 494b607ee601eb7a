// Epilogues of pairs of columns of products of groups whose rows, columns or blocks of k are scaled, on the emulator
// and on a GPU. Sums are of small integers and powers of two, so that they are exact.
#include <array>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "gated_cases.hpp"
#include "group_cases.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using namespace jitgemm::test::groups;
using gated::line_of;
using gated::pairings;
using gated::side_scales;
using gated::SideScales;

namespace {

constexpr std::array ways{std::array{Scaling::vector, Scaling::vector}, std::array{Scaling::value, Scaling::vector},
                          std::array{Scaling::block_1x128, Scaling::block_128x128},
                          std::array{Scaling::block_1x128, Scaling::block_1x128}};

constexpr std::array configs{
    "sm80 64x64x128 group_m=8 stages=3 warps=4 schedule=persistent grid=3",
    "sm80 32x32x64 group_m=1 stages=2 warps=1 schedule=persistent grid=2",
    "sm90 64x32x128 group_m=8 stages=3 warps=4 schedule=persistent grid=3",
    "sm90 128x96x128 group_m=2 stages=2 warps=8 schedule=persistent grid=2",
    "sm90 64x64x128 group_m=8 stages=2 warps=8 consumers=ping_pong schedule=persistent grid=2",
    "sm90 64x16x128 group_m=8 stages=8 warps=4 swap_ab=true schedule=persistent grid=3",
    "sm90 128x48x128 group_m=8 stages=2 warps=8 swap_ab=true schedule=persistent grid=2",
    "sm90 64x64x128 group_m=8 stages=4 warps=4 cluster=2x1x1 schedule=persistent grid=4",
    "sm90 64x32x128 group_m=8 stages=3 warps=4 cluster=2x2x1 swap_ab=true schedule=persistent grid=4",
    "sm90 256x112x128 group_m=8 stages=2 warps=8 schedule=persistent grid=2",
};

struct GatedGroups {
  Case groups;
  Pairing pairs;
  std::int64_t missed_a = -1, missed_b = -1;  // a scale that is another number to what is expected than to the call
};

/// How many elements of D are not what they should be, of rows of groups and of nobody's.
int wrong_elements(TestDevice& device, const GatedGroups& one, Random& random) {
  Problem p = one.groups.problem;
  p.epilogue.function = define_epilogue(parse_epilogue(
      line_of(one.pairs) +
      "// operand in residual matrix bf16\n__device__ float epilogue(float gate, float up, const Args& args, Out&) { "
      "return 2 * gate - up + args.residual; }\n"));
  const bool by_counts = p.grouping == Grouping::counts;
  const std::int64_t m = p.m, n = p.n, k = p.k, width = n / 2, count = p.batch, of_rows = by_counts ? count : 1;
  const std::vector<GroupRows> rows = rows_of(p, one.groups.table);
  const NormalProblem normal = normalise(p);

  // What is no group's is NaN: rows of A and their scales.
  const auto a = device.buffer(m * of_rows * k, p.a.type, 0xff, nullptr);
  const auto b = device.buffer(count * n * k, p.b.type, 0, &random);
  const auto residual = device.buffer(m * of_rows * width, bf16, 0, &random);
  const auto d = device.buffer(m * of_rows * width, f32, 0xff, nullptr);
  const auto table = table_of(device, one.groups.table);
  const bool of_blocks = has_block_scales(p), vector_a = p.a.scaling == Scaling::vector;
  const std::int64_t stride_a = of_blocks               ? scale_stride_a(normal)
                                : vector_a && by_counts ? m
                                                        : 0,
                     stride_b = of_blocks                        ? scale_stride_b(normal)
                                : p.b.scaling == Scaling::vector ? n
                                                                 : 0;
  const SideScales drawn = side_scales(device, p.a, scales_of_a(normal), scale_ld(p.a.scaling, m, k), stride_a, random);
  const SideScales scales_b =
      side_scales(device, p.b, scales_of_b(normal), scale_ld(p.b.scaling, n, k), stride_b, random);
  const SideScales scales_a{device.buffer(scales_of_a(normal), f32, 0xff, nullptr), drawn.scaling, drawn.ld, stride_a};
  if (p.a.scaling == Scaling::value) store(drawn.at(0, 0, 0), scales_a.buffer.host(), 0, f32);
  for (std::int64_t g = 0; g < count; ++g)
    for (std::int64_t row = rows[std::size_t(g)].begin; row < rows[std::size_t(g)].end; ++row) {
      for (std::int64_t i = 0; i < k; ++i)
        store(random.between(-2, 2), a.host(), (row + (by_counts ? g * m : 0)) * k + i, p.a.type);
      for (std::int64_t i = 0; i < k && p.a.scaling != Scaling::value; i += 128)
        store(drawn.at(g, row, i), scales_a.buffer.host(), g * stride_a + (of_blocks ? i / 128 * drawn.ld : 0) + row,
              f32);
    }

  const EpilogueValue value{.in = residual.to_device()};
  Operands operands{.a = a.to_device(), .b = b.to_device(), .d = d.to_device()};
  operands.scale_a = reinterpret_cast<const float*>(scales_a.buffer.to_device());
  operands.scale_b = reinterpret_cast<const float*>(scales_b.buffer.to_device());
  operands.group_rows = on_device(table);
  operands.epilogue = &value;
  operands.epilogue_count = 1;
  if (one.groups.config)
    device.context.gemm(p, operands, nullptr, *one.groups.config);
  else
    device.context.gemm(p, operands);
  device.wait();
  d.from_device();
  for (const auto& [scales, missed] : {std::pair{&scales_a, one.missed_a}, {&scales_b, one.missed_b}})
    if (missed >= 0) store(4 * load(scales->buffer.host(), missed, f32), scales->buffer.host(), missed, f32);

  std::vector<bool> seen(std::size_t(m * of_rows));
  int wrong = 0;
  for (std::int64_t g = 0; g < count; ++g)
    for (std::int64_t row = rows[std::size_t(g)].begin; row < rows[std::size_t(g)].end; ++row) {
      const std::int64_t at = row + (by_counts ? g * m : 0);
      seen[std::size_t(at)] = true;
      const auto sum = [&](std::int64_t column) {
        double result = 0;
        for (std::int64_t i = 0; i < k; ++i)
          result += load(a.host(), at * k + i, p.a.type) * load(b.host(), (g * n + column) * k + i, p.b.type) *
                    (scales_a.at(g, row, i) * scales_b.at(g, column, i));
        return result;
      };
      for (std::int64_t j = 0; j < width; ++j) {
        const bool halves = one.pairs == Pairing::halves;
        const double gate = sum(halves ? j : 2 * j), up = sum(halves ? width + j : 2 * j + 1);
        wrong += load(d.host(), at * width + j, f32) != 2 * gate - up + load(residual.host(), at * width + j, bf16);
      }
    }
  for (std::int64_t at = 0; at < m * of_rows; ++at)
    for (std::int64_t j = 0; !seen[std::size_t(at)] && j < width; ++j) {
      const double left = load(d.host(), at * width + j, f32);
      wrong += left == left;
    }
  return wrong;
}

GatedGroups gated_groups(std::int64_t width, std::int64_t k, const std::vector<std::int32_t>& sizes,
                         std::array<Scaling, 2> how, const KernelConfig* config, Random& random) {
  GatedGroups one{{.problem = groups::problem_of(2 * width, k, sizes, Layout::column_major, e4m3, f32),
                   .table = ends_of(sizes),
                   .config = config},
                  random.pick(pairings)};
  Problem& p = one.groups.problem;
  p.a.type = random.pick(std::array{e4m3, e5m2});
  p.a.scaling = how[0];
  p.b.scaling = how[1];
  if (random.between(0, 1) == 0) p.accumulation = Accumulation::promoted;
  return one;
}

/// Halves that begin with a block of columns and anywhere, groups that begin anywhere, some of them empty.
void scaled_groups(TestDevice& device, Random& random) {
  for (const char* const text : configs) {
    const KernelConfig config = parse_kernel_config(text);
    const int tile = config.swap_ab ? config.block_n : config.block_m;
    for (const auto& how : ways) {
      const std::vector<std::int32_t> sizes{1, 0, tile, 0, tile + random.between(1, tile - 1), 3};
      const std::int64_t width = random.between(0, 2) == 0 ? 128 : random.between(1, 140);
      GatedGroups one = gated_groups(width, 16 * random.between(1, 20), sizes, how, &config, random);
      one.groups.problem.m += random.between(0, 6);  // rows of nobody's
      if (random.between(0, 1) == 0) one.groups = with_counts(one.groups, sizes, random.between(0, 5));
      CAPTURE(text, to_string(one.groups.problem), int(one.pairs));
      CHECK(wrong_elements(device, one, random) == 0);
    }
  }
}

/// As the model chooses, and tables with rows more than there are.
void chosen_and_hostile(TestDevice& device, Random& random) {
  const std::vector<std::int32_t> sizes{26, 26, 26, 26, 26};
  for (const auto& how : ways)
    for (const Grouping grouping : {Grouping::offsets, Grouping::counts}) {
      GatedGroups one = gated_groups(random.between(1, 140), 272, sizes, how, nullptr, random);
      if (grouping == Grouping::counts) one.groups = with_counts(one.groups, sizes, 3);
      CAPTURE(to_string(one.groups.problem), int(one.pairs));
      CHECK(wrong_elements(device, one, random) == 0);
      one.groups.table = random.pick(broken_tables);
      CHECK(wrong_elements(device, one, random) == 0);
    }
  says_broken(device);
}

}  // namespace

TEST_CASE("Pairs of groups have scales, wherever groups and halves begin, on the emulator",
          "[gated_groups][groups][emulator]") {
  run_all_on(GemmDevice::emulator(test_seed()), scaled_groups);
}

TEST_CASE("Scaled pairs of groups are as the model chooses, and of tables out of range, on the emulator",
          "[gated_groups][groups][emulator]") {
  run_all_on(GemmDevice::emulator(), chosen_and_hostile);
}

TEST_CASE("A scale of a group's gate, or of what it lets through, that is missed is seen",
          "[gated_groups][groups][emulator]") {
  TestDevice device(GemmDevice::emulator());
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  const std::vector<std::int32_t> sizes{3, 34, 0, 17};
  for (const char* const text : {configs[0], configs[2], configs[6]}) {
    const KernelConfig config = parse_kernel_config(text);
    for (const auto& how : {ways[0], ways[2], ways[3]}) {
      GatedGroups one = gated_groups(72, 400, sizes, how, &config, random);
      CAPTURE(text, to_string(one.groups.problem), int(one.pairs));
      CHECK(wrong_elements(device, one, random) == 0);
      const NormalProblem p = normalise(one.groups.problem);
      const bool blocks = has_block_scales(p);
      const std::int64_t ld = scale_ld(p.b.scaling, p.n, p.k),
                         first = blocks ? scale_stride_b(p) : p.n;  // of group 1
      for (const std::int64_t column : {std::int64_t{5}, std::int64_t{143}}) {
        GatedGroups missed = one;
        missed.missed_b = first + (p.b.scaling == Scaling::block_128x128 ? column / 128 * ld + 3
                                   : blocks                              ? 3 * ld + column
                                                                         : column);
        CHECK(wrong_elements(device, missed, random) > 0);
      }
      GatedGroups missed = one;
      missed.missed_a = (blocks ? 3 * scale_ld(p.a.scaling, p.m, p.k) : 0) + 36;
      CHECK(wrong_elements(device, missed, random) > 0);
    }
  }
}

TEST_CASE("Scaled pairs of groups are as on the emulator, on a GPU", "[gated_groups][groups][gpu]") {
  run_all_on_gpu(scaled_groups, chosen_and_hostile);
}
