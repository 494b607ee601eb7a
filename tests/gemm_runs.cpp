#include "gemm_runs.hpp"

#include <cmath>
#include <limits>

#include "catch.hpp"
#include "random.hpp"
#include "reference.hpp"

namespace jitgemm::test {

void run_all(std::vector<GemmDevice*> devices, const std::vector<GemmCase>& cases) {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  int failures = 0;
  for (std::size_t i = 0; i < cases.size() && failures < 5; ++i) {
    const Fill fill = i % 3 == 2 ? Fill::integers : Fill::normal;
    const std::string wrong = run_and_check(*devices[i % devices.size()], cases[i], fill, test_seed() + i);
    if (wrong.empty()) continue;
    ++failures;
    FAIL_CHECK(wrong);
  }
  CHECK(cases.size() > 0);
}

KernelConfig small_tile(MainLoop main_loop) {
  if (main_loop == MainLoop::sm80)
    return {.block_m = 64, .block_n = 32, .block_k = 32, .group_m = 2, .stages = 3, .warps = 4};
  return {.main_loop = MainLoop::sm90,
          .block_m = 128,
          .block_n = 128,
          .block_k = 64,
          .group_m = 2,
          .stages = 3,
          .warps = 8};
}

std::vector<KernelConfig> split_schedules(MainLoop main_loop) {
  std::vector<KernelConfig> configs;
  const auto add = [&](Schedule schedule, int splits, int grid) {
    KernelConfig config = small_tile(main_loop);
    config.schedule = schedule;
    config.splits = splits;
    config.grid = grid;
    configs.push_back(config);
  };
  add(Schedule::split_k, 3, 0);
  add(Schedule::split_k, 5, 7);
  add(Schedule::stream_k, 1, 5);
  add(Schedule::stream_k, 1, 23);
  add(Schedule::stream_k_one_tile, 1, 4);
  add(Schedule::stream_k_two_tile, 1, 4);
  return configs;
}

Problem split_problem(const KernelConfig& config) {
  const bool sm80 = config.main_loop == MainLoop::sm80;
  return {.m = 2 * config.block_m - 27,
          .n = (sm80 ? 7 : 5) * config.block_n - 5,
          .k = 5 * config.block_k - 9,
          .d = {f32},
          .alpha = 0.75,
          .beta = -1.5,
          .epilogue = {.bias = Bias::along_n, .activation = Activation::relu}};
}

std::vector<GemmCase> cases_without_product() {
  std::vector<GemmCase> cases;
  std::vector<KernelConfig> configs = split_schedules(MainLoop::sm80);
  configs.push_back(small_tile(MainLoop::sm80));
  for (const KernelConfig& config : configs) {
    Problem problem = split_problem(config);
    problem.k = 0;
    cases.push_back(plain_case(problem, config));
    problem = split_problem(config);
    problem.alpha = 0;
    cases.push_back(plain_case(problem, config));
  }
  return cases;
}

namespace {

/// D with one element of A or C replaced; row 3 of A, element (3, 5) of C.
std::vector<double> row_with(GemmDevice& device, MainLoop main_loop, Activation activation, double in_a, double in_c) {
  Problem problem{.m = 40, .n = 24, .k = 40, .beta = 1, .epilogue = {.activation = activation}};
  const GemmCase gemm = plain_case(problem, small_tile(main_loop));
  GemmInputs inputs = make_inputs(gemm, Fill::normal, 1);
  if (in_a != 0) store(in_a, inputs.a.data(), 3 * gemm.problem.a.ld + 7, f16);
  if (in_c != 0) store(in_c, inputs.c.data(), 3 * gemm.problem.c.ld + 5, f16);
  const std::vector<char> d = device.run(gemm, inputs);
  CHECK(check(gemm, inputs, d) == "");
  std::vector<double> row;
  for (int column = 0; column < 24; ++column)
    row.push_back(load(d.data() + d_guard_bytes, 3 * gemm.problem.d.ld + column, f16));
  return row;
}

}  // namespace

void propagates_nan_and_infinity(GemmDevice& device, MainLoop main_loop) {
  const double not_a_number = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  for (Activation activation : {Activation::none, Activation::relu, Activation::leaky_relu}) {
    for (double x : row_with(device, main_loop, activation, not_a_number, 0)) CHECK(std::isnan(x));
    CHECK(std::isnan(row_with(device, main_loop, activation, 0, not_a_number)[5]));
    CHECK(row_with(device, main_loop, activation, 0, infinity)[5] == infinity);
    CHECK(row_with(device, main_loop, activation, 0, -infinity)[5] == (activation == Activation::relu ? 0 : -infinity));
    for (double x : row_with(device, main_loop, activation, infinity, 0)) CHECK((std::isinf(x) || x == 0));
    CHECK(std::isnan(row_with(device, main_loop, activation, infinity, not_a_number)[5]));
  }
}

}  // namespace jitgemm::test
