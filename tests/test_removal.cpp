// What tools/removal.py runs on templates with one barrier, fence, wait, mask or release removed: few and small kernels
// that go through every path, several tiles a CTA, in many adversarial orders. Hidden: the script looks for
// failures.
#include <array>
#include <iostream>
#include <string>
#include <vector>

#include "along_k_cases.hpp"
#include "catch.hpp"
#include "custom_epilogue_cases.hpp"
#include "errors.hpp"
#include "gemm_cases.hpp"
#include "group_cases.hpp"
#include "random.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

constexpr Layout columns = Layout::column_major;

KernelConfig with_depth(KernelConfig config, int block_k) {
  config.block_k = block_k;
  return config;
}

std::vector<GemmCase> sm80_cases() {
  const auto tile = [](Schedule schedule, int grid, int splits = 1) {
    return KernelConfig{.block_m = 64,
                        .block_n = 32,
                        .block_k = 32,
                        .group_m = 2,
                        .stages = 3,
                        .warps = 4,
                        .schedule = schedule,
                        .splits = splits,
                        .grid = grid};
  };
  return {
      plain_case({.m = 159, .n = 77, .k = 150, .beta = 0.5, .epilogue = {.bias = Bias::along_n}},
                 tile(Schedule::persistent, 2)),
      plain_case({.m = 130,
                  .n = 101,
                  .k = 200,
                  .a = {.type = bf16, .layout = columns},
                  .b = {.type = bf16, .layout = columns},
                  .d = {f32},
                  .beta = 2,
                  .epilogue = {.activation = Activation::relu}},
                 tile(Schedule::stream_k_two_tile, 3), {8, 4, 4, 4}, true),
      plain_case({.m = 101, .n = 91, .k = 171, .b = {.layout = columns}, .epilogue = {.bias = Bias::along_n}},
                 tile(Schedule::split_k, 5, 3), {4, 8, 2, 2}),
      plain_case(
          {.m = 70, .n = 99, .k = 133, .a = {.type = bf16, .layout = columns}, .b = {bf16}, .d = {bf16}, .beta = -1},
          tile(Schedule::stream_k, 5), {2, 2, 4, 4}),
      plain_case({.m = 200, .n = 67, .k = 63, .d = {f32}, .beta = 1, .epilogue = {.bias = Bias::along_n}},
                 tile(Schedule::stream_k_one_tile, 4), {2, 16, 8, 8}),
      plain_case({.m = 128, .n = 96, .k = 128, .b = {.layout = columns}}, tile(Schedule::persistent, 1)),
      plain_case({.m = 70,
                  .n = 99,
                  .k = 133,
                  .a = {.type = s8, .layout = columns},
                  .b = {s8},
                  .d = {s32},
                  .epilogue = {.bias = Bias::along_m, .activation = Activation::relu}},
                 with_depth(tile(Schedule::stream_k, 5), 64), {1, 1, 4, 4}),
      plain_case({.m = 101, .n = 91, .k = 171, .batch = 2, .a = {f32}, .b = {f32}, .d = {f32}, .beta = 1},
                 with_depth(tile(Schedule::split_k, 5, 3), 16)),
  };
}

GemmCase promoted(const char* config, std::int64_t m, std::int64_t n, std::int64_t k) {
  return plain_case({.m = m,
                     .n = n,
                     .k = k,
                     .a = {e4m3},
                     .b = {.type = e4m3, .layout = columns},
                     .d = {f32},
                     .accumulation = Accumulation::promoted},
                    parse_kernel_config(config));
}

std::vector<GemmCase> sm90_cases() {
  const auto tile = [](Schedule schedule, int grid, int splits = 1, int stages = 3) {
    return KernelConfig{.main_loop = MainLoop::sm90,
                        .block_m = 128,
                        .block_n = 128,
                        .block_k = 64,
                        .group_m = 2,
                        .stages = stages,
                        .warps = 8,
                        .schedule = schedule,
                        .splits = splits,
                        .grid = grid};
  };
  return {
      plain_case({.m = 300, .n = 211, .k = 330, .beta = 0.5, .epilogue = {.bias = Bias::along_n}},
                 tile(Schedule::persistent, 2)),
      plain_case(
          {.m = 200, .n = 300, .k = 300, .a = {.type = bf16, .layout = columns}, .b = {bf16}, .d = {f32}, .beta = 2},
          tile(Schedule::stream_k, 5, 1, 2), {16, 16, 16, 16}, true),
      plain_case(
          {.m = 131, .n = 141, .k = 450, .b = {.layout = columns}, .beta = 1, .epilogue = {.bias = Bias::along_n}},
          tile(Schedule::split_k, 5, 3), {16, 16, 2, 2}),
      plain_case({.m = 190,
                  .n = 383,
                  .k = 200,
                  .a = {.layout = columns},
                  .b = {.layout = columns},
                  .d = {f32},
                  .epilogue = {.bias = Bias::along_n}},
                 tile(Schedule::stream_k_two_tile, 2), {16, 16, 4, 4}),
      plain_case({.m = 256, .n = 256, .k = 256}, tile(Schedule::persistent, 1)),
      plain_case({.m = 150,
                  .n = 272,
                  .k = 700,
                  .batch = 2,
                  .a = {e4m3},
                  .b = {.type = e5m2, .layout = columns},
                  .d = {e4m3},
                  .epilogue = {.bias = Bias::along_m}},
                 with_depth(tile(Schedule::stream_k, 5), 128)),
      plain_case({.m = 150,
                  .n = 272,
                  .k = 700,
                  .a = {e5m2},
                  .b = {.type = e4m3, .layout = columns},
                  .d = {f32},
                  .accumulation = Accumulation::promoted},
                 with_depth(tile(Schedule::persistent, 2), 128)),
      promoted("sm90 256x128x128 stages=2 warps=8 schedule=persistent grid=2", 300, 272, 400),  // 64 rows at a time
      promoted("sm90 256x64x128 stages=2 warps=8 schedule=persistent grid=2", 300, 80, 400),    // two times 64 at once
      promoted("sm90 192x48x128 stages=2 warps=8 consumers=ping_pong schedule=persistent grid=2", 390, 80, 400),
      promoted("sm90 64x32x128 stages=8 warps=4 schedule=persistent grid=2", 150, 80, 1500),  // 4 k-blocks at once
  };
}

/// Stages that are used again, edges of scales that are rows and of such that are squares, k-blocks beyond a lane's
/// first.
std::vector<GemmCase> block_scale_cases() {
  constexpr Scaling rows = Scaling::block_1x128, squares = Scaling::block_128x128;
  const auto of = [](const char* config, std::int64_t m, std::int64_t n, std::int64_t k, Scaling a, Scaling b) {
    return plain_case({.m = m,
                       .n = n,
                       .k = k,
                       .a = {.type = e4m3, .scaling = a},
                       .b = {.type = e4m3, .layout = columns, .scaling = b},
                       .d = {f32}},
                      parse_kernel_config(config));
  };
  return {
      of("sm90 64x96x128 stages=2 warps=4 schedule=persistent grid=2", 150, 272, 700, rows, squares),
      of("sm90 128x64x128 stages=2 warps=8 schedule=persistent grid=2", 190, 144, 400, rows, rows),
      of("sm90 64x32x128 stages=2 warps=4 swap_ab=true schedule=data_parallel", 40, 70, 4300, rows, squares),
      of("sm90 64x64x128 stages=2 warps=8 consumers=ping_pong schedule=stream_k grid=3", 140, 140, 500, squares, rows),
      of("sm90 256x128x128 stages=2 warps=8 schedule=persistent grid=2", 300, 272, 400, rows, squares),
      of("sm90 256x32x128 stages=2 warps=8 schedule=persistent grid=2", 300, 80, 400, rows, rows),
      of("sm90 128x64x128 stages=4 warps=8 schedule=persistent grid=2", 190, 144, 900, rows, squares)};
}

std::vector<GemmCase> mechanisms(const std::string& part) {
  std::vector<GemmCase> cases;
  for (const Mechanism& mechanism : hopper_mechanisms()) {
    if (mechanism.part == part) cases.push_back(mechanism.gemm);
  }
  return cases;
}

void run_in_many_orders(const std::vector<GemmCase>& cases) {
  for (std::uint64_t seed = 0; seed < 24; ++seed) {  // every pair of order and asynchrony four times
    GemmDevice device(GemmDevice::emulator(seed, 2));
    for (const GemmCase& gemm : cases) {
      const std::string wrong = run_and_check(device, gemm, Fill::normal, seed);
      if (wrong.empty()) continue;
      std::cout << "caught with seed " << seed << ": " << wrong << std::endl;
      FAIL(wrong);
    }
  }
}

}  // namespace

TEST_CASE("Small kernels of groups are right in many orders", "[.][full][removal][groups]") {
  const std::vector<std::int32_t> sizes{70, 0, 1, 128, 33};
  std::vector<groups::Case> cases;
  std::vector<KernelConfig> configs;
  for (const char* const text :
       {"sm80 64x32x32 group_m=2 stages=3 warps=4 schedule=persistent grid=2",
        "sm90 64x48x64 group_m=2 stages=2 warps=4 schedule=persistent grid=2",
        "sm90 64x32x64 group_m=8 stages=2 warps=8 consumers=ping_pong schedule=persistent grid=2",
        "sm90 64x40x64 group_m=8 stages=2 warps=4 swap_ab=true schedule=persistent grid=2",
        "sm90 64x16x64 group_m=8 stages=13 warps=4 schedule=persistent grid=1",  // its stages hold three tiles
        "sm90 192x32x64 group_m=8 stages=2 warps=12 schedule=persistent grid=2",
        "sm90 64x64x64 group_m=8 stages=3 warps=4 cluster=2x2x1 schedule=persistent grid=4"})
    configs.push_back(parse_kernel_config(text));
  for (const KernelConfig& config : configs) {
    groups::Case one{
        .problem = {.m = 240, .n = 72, .k = 200, .batch = 5, .a = {bf16}, .b = {bf16, columns}, .d = {bf16}},
        .table = groups::ends_of(sizes),
        .config = &config,
        .compares_with_dense = false};
    one.problem.grouping = Grouping::offsets;
    cases.push_back(one);
  }
  // Consumers take turns, those without rows, too.
  const std::array in_turns{
      parse_kernel_config("sm90 128x32x128 group_m=8 stages=8 warps=8 schedule=persistent grid=1"),
      parse_kernel_config("sm90 192x32x128 group_m=8 stages=2 warps=12 cluster=1x2x1 schedule=persistent grid=2")};
  for (const KernelConfig& config : in_turns) {
    groups::Case scaled{.problem = groups::problem_of(64, 656, sizes, columns, e4m3, bf16),
                        .table = groups::ends_of(sizes),
                        .config = &config,
                        .compares_with_dense = false};
    scaled.problem.a.scaling = Scaling::block_1x128;
    scaled.problem.b.scaling = Scaling::block_128x128;
    cases.push_back(scaled);
  }
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    groups::TestDevice device(GemmDevice::emulator(seed, 2));
    Random random(seed);
    for (const groups::Case& one : cases) {
      const std::string wrong = groups::run(device, one, random);
      if (wrong.empty()) continue;
      std::cout << "caught with seed " << seed << ": " << wrong << std::endl;
      FAIL(wrong);
    }
  }
}

TEST_CASE("A launch with a broken table is counted once", "[groups][emulator][removal]") {
  for (const char* const text : {"sm80 64x32x32 group_m=2 stages=3 warps=4 schedule=persistent grid=2",
                                 "sm90 64x48x64 group_m=2 stages=2 warps=4 schedule=persistent grid=2"}) {
    const KernelConfig config = parse_kernel_config(text);
    groups::Case one{
        .problem = {.m = 100, .n = 72, .k = 40, .batch = 3, .a = {bf16}, .b = {bf16, columns}, .d = {bf16}},
        .table = {60, 20, 100},  // backwards
        .config = &config,
        .compares_with_dense = false};
    one.problem.grouping = Grouping::offsets;
    groups::TestDevice device(GemmDevice::emulator(0, 2));
    Random random(0);
    CAPTURE(text);
    REQUIRE(groups::run(device, one, random) == "");
    CHECK_THAT(refusal(ErrorCode::invalid_operand, [&] { device.context.check(); }),
               Catch::Matchers::ContainsSubstring("in 1 call (group 1),"));
    one.table = {60, 100, 101};
    for (int call = 0; call < 2; ++call) REQUIRE(groups::run(device, one, random) == "");
    CHECK_THAT(refusal(ErrorCode::invalid_operand, [&] { device.context.check(); }),
               Catch::Matchers::ContainsSubstring("in 2 calls (the last: group 2),"));
  }
}

TEST_CASE("Small kernels of groups along k are right in many orders", "[.][full][removal][along_k]") {
  const std::vector<std::int32_t> sizes{70, 0, 1, 128, 33};
  std::vector<KernelConfig> configs;
  for (const char* const text :
       {"sm80 64x32x32 group_m=2 stages=3 warps=4 schedule=persistent grid=2",
        "sm90 128x48x64 group_m=2 stages=2 warps=8 schedule=persistent grid=2",
        "sm90 64x32x64 group_m=8 stages=2 warps=8 consumers=ping_pong schedule=persistent grid=2",
        "sm90 64x64x64 group_m=8 stages=3 warps=4 cluster=2x2x1 schedule=persistent grid=4"})
    configs.push_back(parse_kernel_config(text));
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    along_k::TestDevice device(GemmDevice::emulator(seed, 2));
    Random random(seed);
    for (const KernelConfig& config : configs)
      for (const bool k_major : {false, true}) {
        if (k_major && config.main_loop == MainLoop::sm90) continue;
        along_k::KCase one{.problem = along_k::problem_of(136, 72, sizes, bf16, f32, k_major ? along_k::rows : columns,
                                                          k_major ? columns : along_k::rows),
                           .table = groups::ends_of(sizes),
                           .config = &config,
                           .nan_group = 3};  // of which two begin a k-block's tail
        one.problem.k = 240;
        const std::string wrong = along_k::run(device, one, random);
        if (wrong.empty()) continue;
        std::cout << "caught with seed " << seed << ": " << wrong << std::endl;
        FAIL(wrong);
      }
  }
}

TEST_CASE("Small portable kernels are right in many orders", "[.][full][removal][sm80]") {
  run_in_many_orders(sm80_cases());
}

TEST_CASE("Small Hopper kernels are right in many orders", "[.][full][removal][sm90]") {
  run_in_many_orders(sm90_cases());
}

TEST_CASE("Small kernels with scales of blocks are right in many orders", "[.][full][removal][block_scales]") {
  run_in_many_orders(block_scale_cases());
}

TEST_CASE("Small clusters are right in many orders", "[.][full][removal][cluster]") {
  run_in_many_orders(mechanisms("cluster"));
}

TEST_CASE("Small kernels with ping-pong consumers are right in many orders", "[.][full][removal][ping_pong]") {
  run_in_many_orders(mechanisms("ping_pong"));
}

TEST_CASE("Small clusters that split k are right in many orders", "[.][full][removal][cluster_sum]") {
  run_in_many_orders(mechanisms("cluster_sum"));
}

TEST_CASE("Small kernels that store D in every way are right in many orders", "[.][full][removal][store]") {
  run_in_many_orders(mechanisms("store"));
}

TEST_CASE("Small kernels with matrices of an epilogue of one's own are right in many orders",
          "[.][full][removal][own_epilogues]") {
  // Two that are read and two that are written take turns in a stage.
  const own_epilogues::Case four{
      "// operand in a matrix f16\n// operand in b matrix bf16\n// operand out c matrix f16\n"
      "// operand out d matrix bf16\n"
      "__device__ float epilogue(float x, const Args& args, Out& out) {\n"
      "  out.c = x + args.a;\n  out.d = x + args.b;\n  return x + args.a - 2 * args.b;\n}\n",
      [](double x, const std::vector<double>& in, int, int, int) {
        return std::vector<double>{x + in[0] - 2 * in[1], x + in[0], x + in[1]};
      }};
  const TemporaryDirectory cache;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    ContextOptions options = own_epilogues::on_emulator(cache.path());
    options.emulator_seed = seed;
    own_epilogues::TestDevice device(options);
    Random random(seed);
    for (const char* const text : {"sm90 64x72x64 stages=2 warps=4 schedule=persistent grid=2",
                                   "sm90 128x40x64 stages=2 warps=8 swap_ab=true schedule=persistent grid=2",
                                   "sm90 64x64x64 stages=2 warps=8 consumers=ping_pong schedule=persistent grid=2"}) {
      const KernelConfig config = parse_kernel_config(text);
      for (const int n : {152, 150}) {
        const Problem problem = own_epilogues::problem_of(131, n, 72, f16);
        for (const int pad : {0, 10 - n % 8})
          if (const std::string wrong = own_epilogues::run(device, problem, four, &config, random, pad);
              !wrong.empty()) {
            std::cout << "caught with seed " << seed << ": " << wrong << std::endl;
            FAIL(wrong);
          }
      }
    }
  }
}
