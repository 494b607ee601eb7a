// Scales that are no single values: vectors, one a row of A and a column of B, and those of blocks of 128 of k. What a
// call's scales mean is in reference.cpp, which multiplies in float64; how they are rounded in test_bit_agreement.cpp;
// which are refused in test_problem_refusals.cpp and test_operands.cpp.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "gemm_choices.hpp"
#include "gemm_runs.hpp"
#include "jit/source_generator.hpp"
#include "nvrtc.hpp"
#include "random.hpp"
#include "scale_cases.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using namespace jitgemm::test::scales;

namespace {

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
                             "sm90 64x48x128 stages=3 warps=4 cluster=4x1x1 swap_ab=true schedule=data_parallel",
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
