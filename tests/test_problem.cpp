// What normalising makes of a problem, which problems are equal, and what the least is that they move.
#include <cmath>
#include <cstddef>
#include <string>

#include "catch.hpp"
#include "core/data_types.hpp"
#include "core/problem.hpp"
#include "problem_refusal.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("Normalising fills in packed leading dimensions for every layout", "[problem]") {
  NormalProblem p = normalise({.m = 5, .n = 6, .k = 7, .beta = 1});
  CHECK(p.a.ld == 7);
  CHECK(p.b.ld == 6);
  CHECK(p.c.ld == 6);
  CHECK(p.d.ld == 6);
  p = normalise({.m = 5, .n = 6, .k = 7, .a = {.layout = Layout::column_major}, .b = {.layout = Layout::column_major}});
  CHECK(p.a.ld == 5);
  CHECK(p.b.ld == 7);
}

TEST_CASE("An empty matrix has a packed leading dimension of one", "[problem]") {
  const NormalProblem p = normalise({});
  CHECK(p.a.ld == 1);
  CHECK(p.b.ld == 1);
  CHECK(p.d.ld == 1);
}

TEST_CASE("Normalising twice changes nothing", "[problem]") {
  const NormalProblem once = normalise({.m = 33,
                                        .n = 10,
                                        .k = 100,
                                        .a = {.ld = 104},
                                        .d = {f32},
                                        .alpha = 0.1,
                                        .beta = -0.0,
                                        .epilogue = {.activation = Activation::leaky_relu, .slope = 0.3}});
  CHECK(equal(normalise(once), once));
  CHECK(hash_value(normalise(once)) == hash_value(once));
}

TEST_CASE("Alignment is what pointer and leading dimension have in common", "[problem]") {
  const auto align_a = [](std::int64_t lda, int pointer) {
    return normalise({.m = 4, .n = 4, .k = 4, .a = {.ld = lda, .alignment = pointer}}).a.alignment;
  };
  CHECK(align_a(8, 16) == 16);
  CHECK(align_a(12, 16) == 8);
  CHECK(align_a(6, 16) == 4);
  CHECK(align_a(5, 16) == 2);
  CHECK(align_a(8, 4) == 4);
  CHECK(align_a(6, 2) == 2);
  CHECK(normalise({.m = 4, .n = 5, .k = 4, .d = {f32}}).d.alignment == 4);
  CHECK(normalise({.m = 4, .n = 6, .k = 4, .d = {f32}}).d.alignment == 8);
}

TEST_CASE("What does not matter is set to its default, so that equal work compares equal", "[problem]") {
  const NormalProblem plain = normalise({.m = 8, .n = 8, .k = 8});
  CHECK(equal(plain, normalise({.m = 8, .n = 8, .k = 8, .a = {.ld = 8}, .d = {.ld = 8}})));
  CHECK(equal(plain, normalise({.m = 8, .n = 8, .k = 8, .epilogue = {.slope = 7}})));
  CHECK(equal(plain, normalise({.m = 8, .n = 8, .k = 8, .c = {.ld = 100, .alignment = 2}, .beta = -0.0})));
  CHECK(equal(plain, normalise({.m = 8, .n = 8, .k = 8, .alpha = 1 + 1e-12})));  // not in f32
  CHECK(equal(plain, normalise({.m = 8, .n = 8, .k = 8, .accumulation = Accumulation::promoted})));
  CHECK_FALSE(equal(plain, normalise({.m = 8, .n = 8, .k = 8, .c = {.ld = 100}, .beta = 1})));
  const Problem fp8{.m = 8, .n = 8, .k = 8, .a = {e5m2}, .b = {e4m3}, .accumulation = Accumulation::promoted};
  CHECK(shape_of(normalise(fp8)).accumulation == Accumulation::promoted);
}

TEST_CASE("Equality and hash see every field", "[problem]") {
  const NormalProblem base =
      normalise({.m = 8, .n = 8, .k = 8, .beta = 1, .epilogue = {.activation = Activation::leaky_relu}});
  const auto differs = [&base](auto change) {
    Problem other = base;
    change(other);
    CHECK_FALSE(equal(base, other));
    CHECK(hash_value(base) != hash_value(other));
  };
  differs([](Problem& p) { p.m = 9; });
  differs([](Problem& p) { p.n = 9; });
  differs([](Problem& p) { p.k = 9; });
  differs([](Problem& p) { std::swap(p.a.ld, p.m), p.a.ld = 9; });
  differs([](Problem& p) { p.a.type = bf16; });
  differs([](Problem& p) { p.b.type = bf16; });
  differs([](Problem& p) { p.d.type = f32; });
  differs([](Problem& p) { p.a.layout = Layout::column_major; });
  differs([](Problem& p) { p.b.layout = Layout::column_major; });
  differs([](Problem& p) { p.a.ld = 9; });
  differs([](Problem& p) { p.b.ld = 9; });
  differs([](Problem& p) { p.c.ld = 9; });
  differs([](Problem& p) { p.d.ld = 9; });
  differs([](Problem& p) { p.alpha = 2; });
  differs([](Problem& p) { p.beta = not_a_number; });
  differs([](Problem& p) { p.epilogue.bias = Bias::along_n; });
  differs([](Problem& p) { p.epilogue.activation = Activation::relu; });
  differs([](Problem& p) { p.epilogue.slope = 0.5; });
  differs([](Problem& p) { p.accumulation = Accumulation::promoted; });
  differs([](Problem& p) { p.grouping = Grouping::offsets; });
  differs([](Problem& p) { p.grouping = Grouping::along_k; });
  differs([](Problem& p) { p.expected_m = 3; });
  for (Matrix Problem::* const matrix : {&Problem::a, &Problem::b, &Problem::c, &Problem::d})
    differs([&](Problem& p) { (p.*matrix).scaling = Scaling::vector; });
  differs([](Problem& p) { p.batch = 2; });
  differs([](Problem& p) { p.a.alignment = 8; });
  differs([](Problem& p) { p.b.alignment = 8; });
  differs([](Problem& p) { p.c.alignment = 8; });
  differs([](Problem& p) { p.d.alignment = 8; });
  Problem nan = base, other_nan = base;
  nan.beta = not_a_number;
  other_nan.beta = -not_a_number;
  CHECK(equal(nan, other_nan));
  CHECK(hash_value(nan) == hash_value(other_nan));
}

TEST_CASE("Batches are packed unless strides say otherwise, and matrices of D stay apart", "[problem]") {
  NormalProblem p = normalise({.m = 5, .n = 6, .k = 7, .batch = 3, .d = {.ld = 8}, .beta = 1});
  CHECK(p.a.stride == 35);
  CHECK(p.b.stride == 42);
  CHECK(p.c.stride == 30);
  CHECK(p.d.stride == 40);
  p = normalise({.m = 5, .n = 6, .k = 7, .batch = 1, .a = {.stride = 99}});
  CHECK(p.a.stride == 0);
  CHECK(normalise({.m = 5, .n = 6, .k = 7, .batch = 4, .b = {.stride = 0}}).b.stride == 0);
  CHECK(normalise({.m = 16, .n = 16, .k = 16, .batch = 2, .a = {.stride = 258}}).a.alignment == 4);
  CHECK_THAT(problem_refusal({.m = 5, .n = 6, .k = 7, .batch = -1}), ContainsSubstring("batch = -1"));
  CHECK_THAT(problem_refusal({.m = 5, .n = 6, .k = 7, .batch = 2, .a = {.stride = -2}}),
             ContainsSubstring("stride_a = -2"));
  CHECK_THAT(problem_refusal({.m = 5, .n = 6, .k = 7, .batch = 2, .d = {.stride = 0}}), ContainsSubstring("overlap"));
  CHECK_THAT(problem_refusal({.m = 5, .n = 6, .k = 7, .batch = 2, .d = {.stride = 29}}),
             ContainsSubstring("at least 30"));
  CHECK_NOTHROW(normalise({.m = 5, .n = 6, .k = 7, .batch = 2, .d = {.ld = 12, .stride = 6}}));  // rows interleave
  CHECK_THAT(problem_refusal({.m = 5, .n = 6, .k = 7, .batch = 3, .d = {.ld = 12, .stride = 6}}),
             ContainsSubstring("overlap"));
  // The second's rows between the first's, but the second's last behind the first's.
  const auto interleaved = [](std::int64_t stride) {
    return Problem{.m = 8, .n = 8, .k = 8, .batch = 2, .d = {.ld = 100, .stride = stride}};
  };
  CHECK_THAT(
      problem_refusal(interleaved(108)),
      ContainsSubstring("overlap or interleave: give at least 708, or leave it away, or 8 to 92 for rows side by "
                        "side in ldd = 100"));
  for (const std::int64_t bad : {0, 7, 93, 108, 707})
    CHECK_THAT(problem_refusal(interleaved(bad)), ContainsSubstring("overlap"));
  for (const std::int64_t good : {8, 92, 708}) CHECK_NOTHROW(normalise(interleaved(good)));
  CHECK_THAT(problem_refusal({.m = 5, .n = 6, .k = 7, .batch = largest_size, .a = {.stride = std::int64_t(1) << 40}}),
             ContainsSubstring("2^62"));
}

TEST_CASE("Scalars are rounded to f32, and may be NaN or infinite", "[problem]") {
  const NormalProblem p = normalise({.m = 1, .n = 1, .k = 1, .alpha = 0.1, .beta = not_a_number});
  CHECK(p.alpha == double(0.1f));
  CHECK(std::isnan(p.beta));
  CHECK(reads_c(p));
  CHECK(normalise({.alpha = 1e300}).alpha == infinity);
  const NormalProblem tiny = normalise({.m = 1, .n = 1, .k = 1, .alpha = 1e-60, .beta = 1e-60});  // 0 in f32
  CHECK_FALSE(reads_ab(tiny));
  CHECK_FALSE(reads_c(tiny));
}

TEST_CASE("The shape of a problem keeps of the scalars whether they are zero", "[problem]") {
  const auto shape = [](double alpha, double beta, double slope) {
    return shape_of(normalise({.m = 8,
                               .n = 8,
                               .k = 8,
                               .alpha = alpha,
                               .beta = beta,
                               .epilogue = {.activation = Activation::leaky_relu, .slope = slope}}));
  };
  CHECK(equal(shape(2, 3, 0.5), shape(-1, not_a_number, 0.01)));
  CHECK_FALSE(equal(shape(0, 3, 0.5), shape(1, 3, 0.5)));
  CHECK_FALSE(equal(shape(1, 0, 0.5), shape(1, 3, 0.5)));
  CHECK_FALSE(equal(shape(1, 3, 0), shape(1, 3, 0.5)));
}

TEST_CASE("Minimum bytes and floor count what must move", "[problem]") {
  CHECK(minimum_bytes({.m = 10, .n = 20, .k = 30}) == 2 * (10 * 30 + 30 * 20 + 10 * 20));
  CHECK(minimum_bytes({.m = 10, .n = 20, .k = 30, .d = {f32}, .beta = 1, .epilogue = {.bias = Bias::along_n}}) ==
        2 * (10 * 30 + 30 * 20) + 4 * (2 * 10 * 20 + 20));
  CHECK(minimum_bytes({.m = 10, .n = 20, .k = 30, .alpha = 0}) == 2 * 10 * 20);
  Problem scaled{.m = 10, .n = 20, .k = 30, .a = {e4m3}, .b = {e4m3}, .d = {bf16}};
  const double values = minimum_bytes(scaled);
  scaled.b.scaling = Scaling::vector;
  CHECK(minimum_bytes(scaled) == values + 4 * (1 + 20));
  CHECK(floor_us({}) == 2);
  const double compute_bound = 2 * 4096.0 * 4096 * 4096 / 800e6 + 2;
  CHECK(floor_us({.m = 4096, .n = 4096, .k = 4096}) == compute_bound);
  CHECK(floor_us({.m = 1, .n = 4096, .k = 4096}) > 2 + 2 * 4096.0 * 4096 / 4.2e6);
}
