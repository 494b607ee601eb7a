// Epilogues of pairs of columns (jitgemm/epilogue.hpp) of products whose rows, columns or blocks of k are scaled, on
// the emulator and on a GPU.
#include <array>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/operand_matrix.hpp"
#include "core/pairing.hpp"
#include "core/problem.hpp"
#include "gated_cases.hpp"
#include "kernels/legality.hpp"
#include "kernels/packing.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using namespace jitgemm::test::gated;

namespace {

constexpr Scaling rows_of_blocks = Scaling::block_1x128, squares = Scaling::block_128x128;
constexpr std::array vectors{std::array{Scaling::vector, Scaling::vector}, std::array{Scaling::vector, Scaling::value},
                             std::array{Scaling::value, Scaling::vector}};
constexpr std::array blocks{std::array{rows_of_blocks, squares}, std::array{rows_of_blocks, rows_of_blocks},
                            std::array{squares, rows_of_blocks}, std::array{squares, squares}};

/// Where the second half begins in blocks of 128 columns, and in 16 bytes of their scales.
std::int64_t some_width(Random& random) {
  switch (random.between(0, 4)) {
    case 0:
      return 128 * random.between(1, 2);
    case 1:
      return 32 * random.between(1, 7);
    case 2:
      return 8 * random.between(1, 28);
    default:
      return random.between(1, 220);
  }
}

Problem scaled_problem(std::int64_t m, std::int64_t width, std::int64_t k, std::array<Scaling, 2> how, Random& random) {
  Problem problem = problem_of(m, 2 * width, k, random.pick(std::array{f32, bf16, f16}));
  problem.a.type = random.pick(std::array{e4m3, e5m2});
  problem.b.type = random.pick(std::array{e4m3, e5m2});
  problem.a.scaling = how[0];
  problem.b.scaling = how[1];
  problem.accumulation = random.pick(std::array{Accumulation::fast, Accumulation::promoted});
  return problem;
}

// By every way out of a kernel, and every way to the scales.
constexpr std::array configs{
    "sm80 64x64x128 group_m=8 stages=3 warps=4 schedule=data_parallel",
    "sm80 32x32x64 group_m=1 stages=2 warps=1 schedule=data_parallel",
    "sm80 64x128x64 group_m=2 stages=3 warps=8 schedule=stream_k grid=5",
    "sm80 32x64x64 group_m=1 stages=2 warps=2 schedule=split_k splits=3",
    "sm90 64x32x128 group_m=8 stages=3 warps=4 schedule=data_parallel",
    "sm90 128x128x128 group_m=8 stages=2 warps=8 schedule=persistent grid=2",
    "sm90 64x96x128 group_m=8 stages=2 warps=4 schedule=stream_k grid=3",
    "sm90 64x208x128 group_m=8 stages=2 warps=4 schedule=data_parallel",
    "sm90 128x256x128 group_m=8 stages=2 warps=8 schedule=data_parallel",
    "sm90 256x112x128 group_m=8 stages=2 warps=8 schedule=data_parallel",
    "sm90 192x48x128 group_m=8 stages=2 warps=8 consumers=ping_pong schedule=persistent grid=1",
    "sm90 64x64x128 group_m=8 stages=3 warps=8 consumers=ping_pong schedule=stream_k grid=3",
    "sm90 192x64x128 group_m=8 stages=2 warps=12 schedule=data_parallel",
    "sm90 64x16x128 group_m=8 stages=8 warps=4 schedule=data_parallel",  // several k-blocks at once
    "sm90 64x64x128 group_m=8 stages=4 warps=4 cluster=1x1x2 schedule=data_parallel",
    "sm90 64x64x128 group_m=8 stages=3 warps=4 cluster=2x2x1 schedule=split_k splits=2",
    "sm90 64x48x128 group_m=8 stages=3 warps=4 swap_ab=true schedule=data_parallel",
    "sm90 128x40x128 group_m=8 stages=2 warps=8 swap_ab=true schedule=persistent grid=2",
    "sm90 256x96x128 group_m=8 stages=2 warps=8 swap_ab=true schedule=data_parallel",
    "sm90 64x16x128 group_m=8 stages=8 warps=4 swap_ab=true schedule=data_parallel",
    "sm90 192x32x128 group_m=8 stages=2 warps=8 consumers=ping_pong swap_ab=true schedule=persistent grid=1",
    "sm90 64x32x128 group_m=8 stages=3 warps=4 cluster=2x2x1 swap_ab=true schedule=stream_k grid=4",
    "sm90 64x32x128 group_m=8 stages=4 warps=4 cluster=1x1x2 swap_ab=true schedule=data_parallel",
};

template <std::size_t COUNT>
void scaled_in_each_configuration(TestDevice& device, const std::array<std::array<Scaling, 2>, COUNT>& ways,
                                  Random& random) {
  const DeviceInfo info = device_info_for("sm_90a");
  int runs = 0;
  for (const char* const text : configs) {
    const KernelConfig config = parse_kernel_config(text);
    for (const auto& how : ways) {
      const Pairing pairs = random.pick(pairings);
      Problem problem =
          scaled_problem(random.between(1, 9) * 11, some_width(random), 16 * random.between(9, 30), how, random);
      if (config.main_loop == MainLoop::sm80) {
        problem.k -= random.between(0, 15);
        problem.b.layout = random.pick(std::array{Layout::row_major, Layout::column_major});
      }
      problem.batch = random.between(1, 2);
      problem.epilogue.function = define_epilogue(parse_epilogue(line_of(pairs) + everything.text));
      if (!why_illegal(config, normalise(problem), info).empty()) continue;
      ++runs;
      CAPTURE(text, to_string(problem), int(pairs));
      CHECK(run(device, problem, pairs, random.between(0, 1) == 0 ? everything : difference, random,
                {.config = &config, .pad = 16 * random.between(0, 1)}) == "");
    }
  }
  CHECK(runs >= int(configs.size() * ways.size() * 4 / 5));
}

/// As the model chooses, each layout and alignment, 8-bit D, sizes around blocks.
void scaled_as_chosen(TestDevice& device, Random& random) {
  for (const auto& how : {vectors[0], vectors[1], vectors[2], blocks[0], blocks[1], blocks[2], blocks[3]})
    for (const Pairing pairs : pairings)
      for (const auto& [m, width, k] :
           {std::array<std::int64_t, 3>{1, 1, 1}, {1, 131, 128}, {67, 128, 129}, {3, 12, 300}, {130, 9, 257}}) {
        Problem problem = scaled_problem(m, width, k, how, random);
        problem.b.layout = random.pick(std::array{Layout::row_major, Layout::column_major});
        if (random.between(0, 3) == 0) problem.d.type = e4m3;
        CAPTURE(to_string(problem), int(pairs));
        CHECK(run(device, problem, pairs, difference, random,
                  {.pad = random.between(0, 2), .scale_d = problem.d.type == e4m3 ? 0.0625f : 1.0f}) == "");
      }
}

}  // namespace

TEST_CASE("Pairs have vectors of scales, by every way out of a kernel", "[gated_scales][emulator]") {
  run_emulated([](TestDevice& device, Random& random) { scaled_in_each_configuration(device, vectors, random); });
}

TEST_CASE("Pairs have scales of blocks, by every way out of a kernel", "[gated_scales][emulator]") {
  run_emulated([](TestDevice& device, Random& random) { scaled_in_each_configuration(device, blocks, random); });
}

TEST_CASE("Scaled pairs are of each layout, alignment and size", "[gated_scales][emulator]") {
  run_emulated(scaled_as_chosen);
}

TEST_CASE("A scale of a gate, or of what it lets through, that is missed is seen", "[gated_scales][emulator]") {
  run_emulated([](TestDevice& device, Random& random) {
    for (const char* const text : {"sm80 64x64x64 stages=3 warps=4 schedule=data_parallel",
                                   "sm90 64x64x128 stages=3 warps=4 schedule=data_parallel",
                                   "sm90 64x32x128 stages=3 warps=4 swap_ab=true schedule=data_parallel"})
      for (const auto& how : {vectors[0], blocks[0], blocks[1], blocks[2], blocks[3]})
        for (const Pairing pairs : pairings) {
          const KernelConfig config = parse_kernel_config(text);
          Problem problem = scaled_problem(35, 72, 272, how, random);
          problem.d.type = f32;
          const NormalProblem p = normalise(problem);
          const std::int64_t width = 72, k_block = is_of_blocks(how[1]) ? random.between(0, 2) : 0;
          // Of B, a scale of the first and of the second kind.
          for (const std::int64_t column : {std::int64_t(random.between(0, 71)), width + random.between(0, 71)}) {
            const std::int64_t ld = scale_ld(p.b.scaling, p.n, p.k);
            const std::int64_t missed = how[1] == squares          ? column / 128 * ld + k_block
                                        : how[1] == rows_of_blocks ? k_block * ld + column
                                                                   : column;
            CAPTURE(text, to_string(problem), int(pairs), missed);
            CHECK(run(device, problem, pairs, difference, random, {.config = &config, .missed_b = missed}) != "");
          }
          CHECK(run(device, problem, pairs, difference, random,
                    {.config = &config, .missed_a = how[0] == squares ? k_block : random.between(0, 34)}) != "");
          CHECK(run(device, problem, pairs, difference, random, {.config = &config}) == "");
        }
  });
}

TEST_CASE("Scales of a B that is packed slab by slab are those of both columns of a pair", "[gated_scales][emulator]") {
  run_emulated([](TestDevice& device, Random& random) {
    const KernelConfig config =
        parse_kernel_config("sm90 64x32x128 group_m=8 stages=2 warps=4 schedule=data_parallel pack=b");
    for (const auto& how : {vectors[0], blocks[0], blocks[1]}) {
      const Pairing pairs = random.pick(pairings);
      Problem problem = scaled_problem(1, 72, 500'000, how, random);
      problem.b.layout = Layout::row_major;
      problem.accumulation = Accumulation::promoted;
      problem.alpha = 0x1p-6;
      problem.epilogue.function = define_epilogue(parse_epilogue(line_of(pairs) + difference.text));
      const Slab slab = slab_of(normalise(problem), config);
      CAPTURE(to_string(problem), int(pairs));
      CHECK((slab.columns > 0 && slab.columns < problem.n));
      CHECK(run(device, problem, pairs, difference, random, {.config = &config}) == "");
    }
  });
}

TEST_CASE("On a GPU, scaled pairs are as on the emulator", "[gated_scales][gpu]") {
  if (cuda_devices().empty()) SKIP("no CUDA device");
  const TemporaryDirectory cache;
  Random random(test_seed());
  CAPTURE(test_seed());
  ContextOptions options = on_emulator(cache.path(), random);
  options.device = Device::cuda;
  TestDevice device(options);
  scaled_in_each_configuration(device, vectors, random);
  scaled_in_each_configuration(device, blocks, random);
  scaled_as_chosen(device, random);
}
