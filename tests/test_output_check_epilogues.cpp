// What the kernel that checks candidates recomputes of alpha, beta, C, biases, activations and scales, on the emulator.
#include <cstdint>
#include <vector>

#include "catch.hpp"
#include "output_check_cases.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using namespace jitgemm::test::output_check;

TEST_CASE("Where a D is right all of the epilogue was recomputed", "[output_check][emulated]") {
  const Problem f16_all{.m = 19, .n = 23, .k = 40, .alpha = -0.75, .beta = 1.5};
  std::vector<Problem> problems;
  for (const Bias bias : {Bias::along_n, Bias::along_m})
    for (const Activation activation : {Activation::none, Activation::leaky_relu, Activation::silu}) {
      problems.push_back(f16_all);
      problems.back().epilogue = {.bias = bias, .activation = activation, .slope = 0.25};
    }
  problems.push_back({.m = 19, .n = 23, .k = 0, .beta = 2});
  problems.push_back({.m = 19, .n = 23, .k = 40, .alpha = 0, .epilogue = {.bias = Bias::along_m}});
  problems.push_back({.m = 19, .n = 23, .k = 40, .epilogue = {.activation = Activation::gelu_erf}});
  problems.push_back({.m = 19,
                      .n = 23,
                      .k = 40,
                      .a = {s8},
                      .b = {s8},
                      .d = {s32},
                      .alpha = -3,
                      .beta = 5,
                      .epilogue = {.bias = Bias::along_m, .activation = Activation::relu}});
  problems.push_back({.m = 19,
                      .n = 23,
                      .k = 40,
                      .a = {f64},
                      .b = {f64},
                      .d = {f64},
                      .alpha = 1e-3,
                      .beta = -1,
                      .epilogue = {.activation = Activation::gelu_tanh}});
  // Layouts, leading dimensions, batches: apart, side by side, of one A, with gaps.
  problems.push_back({.m = 19, .n = 23, .k = 40, .a = {f16, columns, 25}, .b = {f16, columns, 44}, .d = {f16, {}, 30}});
  problems.push_back({.m = 19,
                      .n = 23,
                      .k = 40,
                      .batch = 3,
                      .a = {f16, {}, 0, 0},
                      .b = {f16, columns},
                      .c = {DataType::automatic, {}, 24, 900},
                      .d = {f16, {}, 80, 26},
                      .beta = 1});
  problems.push_back({.m = 19, .n = 23, .k = 40, .batch = 3, .a = {f16, {}, 41, 1000}, .d = {f16, {}, 29, 600}});
  problems.push_back({.m = 3000, .n = 1, .k = 3});
  for (const Problem& problem : problems) {
    Candidates candidates(problem);
    INFO(to_string(candidates.p));
    candidates.begin();
    require_right(candidates.judge_right());
    require_right(candidates.judge_right(0.9));
    const std::int64_t last = candidates.count() - 1;
    for (const std::int64_t element : {std::int64_t(0), last / 2 + 1, last})
      CHECK(candidates.judge([&] { candidates.spoil(element); }).why_wrong != "");
  }
}

TEST_CASE("Scales are the kernel's, and an 8-bit D saturates", "[output_check][emulated]") {
  for (const double scale : {0.25, 40.0}) {
    Candidates candidates({.m = 19, .n = 23, .k = 40, .a = {e4m3}, .b = {e4m3}, .d = {e4m3}, .alpha = 2},
                          make_emulator_backend({}), scale);
    candidates.begin();
    require_right(candidates.judge_right());
    CHECK(candidates.judge([&] { candidates.spoil(5); }).why_wrong != "");
    *const_cast<float*>(candidates.operands.scale_b) = -3;  // what was right no longer is
    const Reference before = candidates.exact;
    candidates.begin();
    candidates.exact = before;
    CHECK(candidates.judge_right().why_wrong != "");
  }
}

TEST_CASE("Integers are exact, and wrap", "[output_check][emulated]") {
  Candidates candidates({.m = 9, .n = 12, .k = 300, .a = {s8}, .b = {s8}, .d = {s32}, .alpha = 1 << 30});
  for (int i = 0; i < 9 * 300; ++i) static_cast<signed char*>(const_cast<void*>(candidates.operands.a))[i] = 127;
  candidates.begin();
  require_right(candidates.judge_right());
  CHECK(candidates.judge([&] { candidates.put(50, candidates.right(50) + 1); }).why_wrong != "");
  candidates.begin();
  CHECK(candidates.judge([&] { candidates.put(0, candidates.right(0) - 1); }).why_wrong != "");
}
