// Which row, column and block a scale belongs to, and that a check sees where it is another's.
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "core/element.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "gemm_runs.hpp"
#include "random.hpp"
#include "scale_cases.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using namespace jitgemm::test::scales;
using Catch::Matchers::ContainsSubstring;

namespace {

double element(const GemmCase& gemm, const std::vector<char>& d, std::int64_t row, std::int64_t column) {
  return load(d.data() + d_guard_bytes + gemm.offset_d, row * gemm.problem.d.ld + column, gemm.problem.d.type);
}

/// No scale is that of the one beside it, or 1.
void make_neighbours_differ(GemmInputs& inputs) {
  for (auto* const scales : {&inputs.scales_a, &inputs.scales_b})
    for (std::size_t i = 0; i < scales->size(); ++i) (*scales)[i] = std::array{1.25f, 0.5f, -0.75f}[i % 3];
}

}  // namespace

TEST_CASE("A scale that is missed, or has changed places with its neighbour, is seen", "[scales][emulated]") {
  GemmDevice device(GemmDevice::emulator());
  for (const MainLoop main_loop : {MainLoop::sm80, MainLoop::sm90})
    for (const DataType d : {bf16, f32, e4m3}) {
      const GemmCase gemm = plain_case(problem_of(35, 43, 200, e4m3, d), tile_of(main_loop));
      GemmInputs inputs = make_inputs(gemm, Fill::normal, test_seed());
      make_neighbours_differ(inputs);
      const std::vector<char> out = device.run(gemm, inputs);
      CAPTURE(to_string(gemm), test_seed());
      REQUIRE(check(gemm, inputs, out) == "");
      for (std::vector<float> GemmInputs::* const scales : {&GemmInputs::scales_a, &GemmInputs::scales_b})
        for (std::size_t i = 0; i + 1 < (inputs.*scales).size(); i += 3) {
          GemmInputs missed = inputs, swapped = inputs;
          (missed.*scales)[i] = 1;
          std::swap((swapped.*scales)[i], (swapped.*scales)[i + 1]);
          CHECK_THAT(check(gemm, missed, out), ContainsSubstring("wrong"));
          CHECK_THAT(check(gemm, swapped, out), ContainsSubstring("wrong"));
        }
    }
}

TEST_CASE("A block's scale that is missed, or has changed places with its neighbour, is seen", "[scales][emulated]") {
  GemmDevice device(GemmDevice::emulator());
  for (const char* config : {"sm80 64x64x64 stages=3 warps=4 schedule=data_parallel",
                             "sm90 64x64x128 stages=3 warps=4 schedule=data_parallel",
                             "sm90 256x112x128 stages=2 warps=8 schedule=data_parallel",
                             "sm90 192x32x128 stages=2 warps=8 consumers=ping_pong schedule=persistent grid=1"})
    for (const auto& how : blocks) {
      Problem problem = problem_of(135, 140, 300, e4m3, f32);
      scale(problem, how);
      const GemmCase gemm = plain_case(problem, parse_kernel_config(config));
      GemmInputs inputs = make_inputs(gemm, Fill::normal, test_seed());
      make_neighbours_differ(inputs);
      const std::vector<char> out = device.run(gemm, inputs);
      CAPTURE(to_string(gemm), test_seed());
      REQUIRE(check(gemm, inputs, out) == "");
      for (const auto& [scales, scaling, rows] :
           {std::tuple{&GemmInputs::scales_a, how[0], problem.m}, {&GemmInputs::scales_b, how[1], problem.n}}) {
        // The first and the last of each block of k.
        const std::int64_t ld = scale_ld(scaling, rows, problem.k), count = scaling == squares ? 2 : rows;
        for (std::int64_t k_block = 0; k_block < 3; ++k_block)
          for (const std::int64_t row : {std::int64_t{0}, count - 1}) {
            const auto i = std::size_t(scaling == squares ? row * ld + k_block : k_block * ld + row);
            GemmInputs missed = inputs, swapped = inputs;
            (missed.*scales)[i] = 1;
            std::swap((swapped.*scales)[i], (swapped.*scales)[i > 0 ? i - 1 : i + 1]);
            CAPTURE(i, scaling == squares);
            CHECK_THAT(check(gemm, missed, out), ContainsSubstring("wrong"));
            CHECK_THAT(check(gemm, swapped, out), ContainsSubstring("wrong"));
          }
      }
    }
}

TEST_CASE("NaN, infinity and zero scale their own row and column alone", "[scales][emulated]") {
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  GemmDevice device(GemmDevice::emulator());
  for (const MainLoop main_loop : {MainLoop::sm80, MainLoop::sm90}) {
    const GemmCase gemm = plain_case(problem_of(20, 24, 64, e4m3, f32), tile_of(main_loop));
    GemmInputs inputs = make_inputs(gemm, Fill::normal, test_seed());
    inputs.scales_a[3] = nan;
    inputs.scales_a[5] = infinity;
    inputs.scales_b[7] = 0;
    inputs.scales_b[9] = -infinity;
    const std::vector<char> d = device.run(gemm, inputs);
    CAPTURE(to_string(gemm), test_seed());
    for (std::int64_t row = 0; row < 20; ++row)
      for (std::int64_t column = 0; column < 24; ++column) {
        const double x = element(gemm, d, row, column);
        CAPTURE(row, column, x);
        if (row == 3 || (row == 5 && column == 7))
          CHECK(std::isnan(x));
        else if (row == 5 || column == 9)
          CHECK((std::isinf(x) || std::isnan(x)));  // NaN of a sum of 0
        else
          CHECK((column == 7 ? x == 0 : std::isfinite(x)));
      }
  }
}

TEST_CASE("Where nothing is multiplied, vectors of scales are not read", "[scales][emulated]") {
  GemmDevice device(GemmDevice::emulator());
  std::vector<GemmCase> cases;
  for (GemmCase gemm : cases_without_product()) {
    gemm.config.block_k *= 2;
    Problem problem = gemm.problem;
    problem.a = {e4m3};
    problem.b = {e4m3};
    scale(problem, sides[0]);
    cases.push_back(plain_case(problem, gemm.config));
  }
  run_all({&device}, cases);  // with scales of NaN

  Problem problem = problem_of(16, 16, 0, e4m3, f32);
  problem.beta = 2;
  const std::vector<float> c(16 * 16, 3);
  std::vector<float> d(16 * 16, -1);
  device.context().gemm(problem, {.c = c.data(), .d = d.data()});
  CHECK(d == std::vector<float>(16 * 16, 6));
}
