#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

#include "catch.hpp"
#include "core/data_types.hpp"
#include "core/problem.hpp"
#include "problem_refusal.hpp"

using namespace jitgemm;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string refusal(const Problem& problem) {
  return test::problem_refusal(ErrorCode::invalid_problem, [&] { normalise(problem); });
}

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t largest = 0x7fffffff;

}  // namespace

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

TEST_CASE("Sizes outside of 0 to 2^31 - 1 are refused", "[problem]") {
  CHECK_THAT(refusal({.m = -1}), ContainsSubstring("m = -1"));
  CHECK_THAT(refusal({.n = largest + 1}), ContainsSubstring("n = 2147483648"));
  CHECK_THAT(refusal({.k = -5}), ContainsSubstring("k = -5"));
  CHECK_NOTHROW(normalise({.m = largest, .n = 1 << 17, .k = 1 << 17}));
  CHECK_NOTHROW(normalise({.m = 1 << 17, .n = largest, .k = 1 << 17}));
  CHECK_NOTHROW(normalise({.m = 1 << 17, .n = 1 << 17, .k = largest}));
}

TEST_CASE("The types of the table at Problem are accepted, and no others", "[problem]") {
  std::vector<DataType> all;
  for (const DataTypeInfo& info : data_types()) all.push_back(info.type);
  const auto is_8_bit_float = [](DataType type) { return type == e4m3 || type == e5m2; };
  int accepted = 0;
  for (DataType a : all)
    for (DataType b : all)
      for (DataType d : all) {
        const bool two_bytes = a == f16 || a == bf16, fp8 = is_8_bit_float(a) && is_8_bit_float(b);
        const bool short_d = d == f16 || d == bf16 || d == f32;
        const bool expected = (a == b && two_bytes && short_d) || (fp8 && (short_d || is_8_bit_float(d))) ||
                              (a == b && (a == tf32 || a == f32) && d == f32) || (a == b && a == f64 && d == f64) ||
                              (a == b && a == s8 && (short_d || d == s32));
        CAPTURE(to_string(a), to_string(b), to_string(d));
        CHECK((refusal({.m = 1, .n = 1, .k = 1, .a = {a}, .b = {b}, .d = {d}}) == "no error") == expected);
        accepted += expected;
      }
  CHECK(accepted == 6 + 20 + 2 + 1 + 4);
  CHECK_THAT(refusal({.a = {f16}, .b = {bf16}}), ContainsSubstring("a = f16 by b = bf16: with this a use b = f16"));
  CHECK_THAT(refusal({.a = {e5m2}, .b = {s8}}), ContainsSubstring("with this a use b = e4m3 or e5m2"));
  CHECK_THAT(refusal({.a = {s32}, .b = {s8}}), ContainsSubstring("use a = " + input_type_names()));
  CHECK_THAT(refusal({.a = {tf32}, .b = {tf32}}), ContainsSubstring("into d = f16: use f32"));
  CHECK_THAT(refusal({.a = {e4m3}, .b = {e5m2}, .d = {s32}}), ContainsSubstring("use f16, bf16, f32, e4m3 or e5m2"));
  CHECK_THAT(refusal({.a = {DataType(77)}, .b = {DataType(77)}}), ContainsSubstring("an unknown type"));
}

TEST_CASE("Scalars print as the kernel gets them, with all their digits", "[problem]") {
  CHECK(to_string(Problem{.m = 1, .n = 1, .k = 1, .beta = 208000000004.0}) ==
        "m=1 n=1 k=1 a=f16 b=f16 d=f16 beta=2.08000008e+11");
  CHECK(to_string(Problem{.m = 1, .n = 1, .k = 1, .a = {s8}, .b = {s8}, .d = {s32}, .alpha = 1073741825}) ==
        "m=1 n=1 k=1 a=s8 b=s8 d=s32 alpha=1073741825");
}

TEST_CASE("What the kernel cannot tell from a default is left out, so that a text read back prints the same",
          "[problem]") {
  const Problem one{.m = 1, .n = 1, .k = 1};
  const auto with = [&one](auto change) {
    Problem p = one;
    change(p);
    return p;
  };
  const auto leaky = [](Problem& p, double slope) {
    p.epilogue.activation = Activation::leaky_relu;
    p.epilogue.slope = slope;
  };
  const auto f64s = [](Problem& p) { p.a.type = p.b.type = p.d.type = f64; };
  const std::string head = "m=1 n=1 k=1 a=f16 b=f16 d=f16", of_f64 = "m=1 n=1 k=1 a=f64 b=f64 d=f64";
  const std::pair<Problem, std::string> texts[] = {
      {with([](Problem& p) { p.beta = 1e-320; }), head},
      {with([](Problem& p) { p.beta = -1e-320, p.batch = 2, p.c.stride = 9; }), head + " batch=2"},
      {with([](Problem& p) { p.alpha = 1 + 1e-12; }), head},
      {with([](Problem& p) { p.alpha = 1e-320; }), head + " alpha=0"},
      {with([&](Problem& p) { leaky(p, 0.01 + 1e-12); }), head + " activation=leaky_relu"},
      {with([&](Problem& p) { leaky(p, 0.25); }), head + " activation=leaky_relu slope=0.25"},
      {with([&](Problem& p) { f64s(p), p.beta = 1e-300; }), of_f64 + " beta=1e-300"},
      {with([&](Problem& p) { f64s(p), leaky(p, double(0.01f)); }),
       of_f64 + " activation=leaky_relu slope=0.0099999997764825821"}};
  for (const auto& [problem, text] : texts) {
    CHECK(to_string(problem) == text);
    CHECK(to_string(parse_problem(text)) == text);
    CHECK(equal(normalise(parse_problem(text)), normalise(problem)));
  }
}

TEST_CASE("What a text says twice is refused", "[problem]") {
  for (const char* const twice : {"m=1 m=2", "1x2x3 k=3", "m=1 a=f16 a=f16"})
    CHECK_THAT(test::refusal(ErrorCode::invalid_problem, [&] { parse_problem(twice); }),
               ContainsSubstring("a second time"));
  for (const char* text : {"m=64 n=64", "k=64 a=bf16", "m=0 k=0"})
    CHECK_THAT(test::refusal(ErrorCode::invalid_problem, [text] { parse_problem(text); }),
               ContainsSubstring("is missing: give m, n and k, or none of them"));
}

TEST_CASE("A type of C is undone by naming it automatic, which no other matrix is", "[problem]") {
  Problem p = parse_problem("m=1 n=1 k=1 a=f16 c=f32");
  CHECK(p.c.type == f32);
  set_field(p, "c", to_string(DataType::automatic));
  CHECK(p.c.type == DataType::automatic);
  CHECK(parse_problem("m=1 n=1 k=1 c=automatic").c.type == DataType::automatic);
  for (const char* field : {"a", "b", "d"})
    CHECK_THAT(test::refusal(ErrorCode::invalid_problem, [&] { set_field(p, field, "automatic"); }),
               ContainsSubstring("unknown type \"automatic\""));
  CHECK_THAT(test::refusal(ErrorCode::invalid_problem, [&] { set_field(p, "c", "f61"); }),
             ContainsSubstring("automatic"));
}

TEST_CASE("A field that there is not, and a number out of range, are refused with what there is", "[problem]") {
  Problem p;
  const auto refused = [&p](const char* name, const char* value) {
    return test::refusal(ErrorCode::invalid_problem, [&] { set_field(p, name, value); });
  };
  CHECK_THAT(refused("foo", "1"), ContainsSubstring("no field \"foo\": it has m, n, k, a, b, c, d, layout_a"));
  for (const char* number : {"1e-400", "1e999", "-1e999"})
    CHECK_THAT(refused("alpha", number), ContainsSubstring(std::string(number) + " is out of range"));
  CHECK_THAT(refused("m", "99999999999999999999"), ContainsSubstring("is out of range: give an integer of 64 bits"));
  CHECK_THAT(refused("align_a", "-4294967296"), ContainsSubstring("is out of range: give an integer of 32 bits"));
  CHECK_THAT(refused("alpha", "1e999x"), ContainsSubstring("is not a number"));
}

TEST_CASE("Integers have whole scalars and no curved activations", "[problem]") {
  const Problem integers{.m = 4, .n = 4, .k = 4, .a = {s8}, .b = {s8}, .d = {s32}};
  const auto with = [&](auto change) {
    Problem problem = integers;
    change(problem);
    return refusal(problem);
  };
  CHECK(with([](Problem& p) { p.alpha = -3, p.beta = 7, p.epilogue.activation = Activation::relu; }) == "no error");
  CHECK_THAT(with([](Problem& p) { p.alpha = 0.5; }), ContainsSubstring("alpha = 0.5 multiplies integers"));
  CHECK_THAT(with([](Problem& p) { p.beta = 0x1p31; }), ContainsSubstring("beta"));
  CHECK_THAT(with([](Problem& p) { p.beta = not_a_number; }), ContainsSubstring("whole number"));
  CHECK_THAT(with([](Problem& p) { p.epilogue.activation = Activation::silu; }), ContainsSubstring("silu"));
  for (const DataType d : {f16, bf16, f32}) {
    CHECK(with([&](Problem& p) {
            p.d.type = d, p.alpha = 0.5, p.beta = not_a_number, p.epilogue.activation = Activation::silu;
          }) == "no error");
  }
}

TEST_CASE("Vectors of scales belong to 8-bit operands of a floating-point D", "[problem]") {
  const auto with = [](auto change) {
    Problem problem{.m = 4, .n = 4, .k = 4, .a = {e4m3}, .b = {e5m2}, .d = {bf16}};
    problem.a.scaling = problem.b.scaling = Scaling::vector;
    change(problem);
    return refusal(problem);
  };
  CHECK(with([](Problem&) {}) == "no error");
  CHECK(with([](Problem& p) { p.a.scaling = Scaling::value; }) == "no error");
  CHECK(with([](Problem& p) { p.d.type = e4m3; }) == "no error");
  CHECK(with([](Problem& p) { p.a.type = p.b.type = s8; }) == "no error");
  CHECK_THAT(with([](Problem& p) { p.a.type = p.b.type = s8, p.d.type = s32; }),
             ContainsSubstring("no kernel scales a = s8 into d = s32 by vectors or blocks: use"));
  for (const DataType type : {f16, bf16, f32, tf32, f64})
    CHECK_THAT(with([&](Problem& p) {
                 p.a.type = p.b.type = type, p.d.type = default_output(type), p.b.scaling = Scaling::value;
               }),
               ContainsSubstring("by vectors or blocks: use"));
  CHECK_THAT(with([](Problem& p) { p.c.scaling = Scaling::vector; }), ContainsSubstring("C has no scales"));
  CHECK_THAT(with([](Problem& p) { p.d.scaling = Scaling::vector; }), ContainsSubstring("D gets scales of 1x128"));
  CHECK_THAT(with([](Problem& p) { p.b.scaling = Scaling(4); }),
             ContainsSubstring("unknown scaling: use value, vector"));
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
  CHECK_THAT(refusal({.m = 5, .n = 6, .k = 7, .batch = -1}), ContainsSubstring("batch = -1"));
  CHECK_THAT(refusal({.m = 5, .n = 6, .k = 7, .batch = 2, .a = {.stride = -2}}), ContainsSubstring("stride_a = -2"));
  CHECK_THAT(refusal({.m = 5, .n = 6, .k = 7, .batch = 2, .d = {.stride = 0}}), ContainsSubstring("overlap"));
  CHECK_THAT(refusal({.m = 5, .n = 6, .k = 7, .batch = 2, .d = {.stride = 29}}), ContainsSubstring("at least 30"));
  CHECK_NOTHROW(normalise({.m = 5, .n = 6, .k = 7, .batch = 2, .d = {.ld = 12, .stride = 6}}));  // rows interleave
  CHECK_THAT(refusal({.m = 5, .n = 6, .k = 7, .batch = 3, .d = {.ld = 12, .stride = 6}}), ContainsSubstring("overlap"));
  // The second's rows between the first's, but the second's last behind the first's.
  const auto interleaved = [](std::int64_t stride) {
    return Problem{.m = 8, .n = 8, .k = 8, .batch = 2, .d = {.ld = 100, .stride = stride}};
  };
  CHECK_THAT(
      refusal(interleaved(108)),
      ContainsSubstring("overlap or interleave: give at least 708, or leave it away, or 8 to 92 for rows side by "
                        "side in ldd = 100"));
  for (const std::int64_t bad : {0, 7, 93, 108, 707}) CHECK(refusal(interleaved(bad)) != "");
  for (const std::int64_t good : {8, 92, 708}) CHECK_NOTHROW(normalise(interleaved(good)));
  CHECK_THAT(refusal({.m = 5, .n = 6, .k = 7, .batch = largest, .a = {.stride = std::int64_t(1) << 40}}),
             ContainsSubstring("2^62"));
}

TEST_CASE("Leading dimensions that are too small or too large are refused", "[problem]") {
  CHECK_THAT(refusal({.m = 4, .n = 4, .k = 4, .a = {.ld = 3}}), ContainsSubstring("lda = 3"));
  CHECK_THAT(refusal({.m = 4, .n = 4, .k = 4, .b = {.ld = -4}}), ContainsSubstring("ldb = -4"));
  CHECK_THAT(refusal({.m = 4, .n = 4, .k = 4, .c = {.ld = 3}, .beta = 1}), ContainsSubstring("ldc = 3"));
  CHECK_THAT(refusal({.m = 4, .n = 4, .k = 4, .d = {.ld = 3}}), ContainsSubstring("ldd = 3"));
  const std::int64_t huge = std::int64_t(1) << 49;
  CHECK_NOTHROW(normalise({.m = 1, .n = 4, .k = 4, .a = {.ld = huge}}));
  CHECK_THAT(refusal({.m = 4, .n = 4, .k = 4, .a = {.ld = huge}}), ContainsSubstring("larger than 2^50 bytes"));
  CHECK_THAT(refusal({.m = 1, .n = 4, .k = 4, .d = {.type = f32, .ld = huge}}),
             ContainsSubstring("larger than 2^50 bytes"));
}

TEST_CASE("Alignments that are no power of two from the element's size to 16 are refused", "[problem]") {
  for (int align : {0, -16, 1, 3, 12, 32}) {
    CHECK_THAT(refusal({.m = 4, .n = 4, .k = 4, .a = {.alignment = align}}), ContainsSubstring("align_a"));
    CHECK_THAT(refusal({.m = 4, .n = 4, .k = 4, .b = {.alignment = align}}), ContainsSubstring("align_b"));
  }
  CHECK_THAT(refusal({.m = 4, .n = 4, .k = 4, .d = {.type = f32, .alignment = 2}}), ContainsSubstring("from 4 to 16"));
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

TEST_CASE("A slope is no NaN, of whatever activation", "[problem]") {
  for (const DataType type : {f16, f64})
    for (const Activation activation : {Activation::leaky_relu, Activation::relu}) {
      Problem problem{.m = 1, .n = 1, .k = 1, .a = {type}, .b = {type}, .d = {type}};
      problem.epilogue = {.activation = activation, .slope = not_a_number};
      CHECK_THAT(refusal(problem), ContainsSubstring("slope = nan is not a number: give one"));
      problem.epilogue.slope = -infinity;
      CHECK(refusal(problem) == "no error");
    }
  CHECK(normalise({.epilogue = {.activation = Activation::leaky_relu, .slope = -infinity}}).epilogue.slope ==
        -infinity);
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

TEST_CASE("Scales of blocks belong to both operands of 8-bit floating point", "[problem]") {
  const auto with = [](auto change) {
    Problem problem{.m = 4, .n = 4, .k = 4, .a = {e4m3}, .b = {e5m2}, .d = {bf16}};
    problem.a.scaling = Scaling::block_1x128;
    problem.b.scaling = Scaling::block_128x128;
    change(problem);
    return refusal(problem);
  };
  CHECK(with([](Problem&) {}) == "no error");
  CHECK(with([](Problem& p) { p.b.scaling = Scaling::block_1x128; }) == "no error");
  CHECK(with([](Problem& p) { p.a.scaling = Scaling::block_128x128; }) == "no error");
  for (const Scaling scaling : {Scaling::value, Scaling::vector}) {
    CHECK_THAT(with([&](Problem& p) { p.a.scaling = scaling; }), ContainsSubstring("block_128x128 for both"));
    CHECK_THAT(with([&](Problem& p) { p.b.scaling = scaling; }), ContainsSubstring("block_128x128 for both"));
  }
  CHECK_THAT(with([](Problem& p) { p.a.type = p.b.type = f16; }), ContainsSubstring("by vectors or blocks"));
  CHECK_THAT(with([](Problem& p) { p.a.type = p.b.type = s8; }), ContainsSubstring("scales blocks of a = s8"));
  CHECK(with([](Problem& p) { p.batch = 2; }) == "no error");

  Problem problem{.m = 5, .n = 7, .k = 129, .a = {e4m3}, .b = {e4m3}, .d = {bf16}};
  problem.a.scaling = problem.b.scaling = Scaling::block_1x128;
  CHECK(normalise(problem).accumulation == Accumulation::promoted);
  problem.k = 0;
  CHECK(normalise(problem).a.scaling == Scaling::value);  // what nobody reads
}

TEST_CASE("A problem prints on one line without its defaults", "[problem]") {
  CHECK(to_string(
            normalise({.m = 1, .n = 2, .k = 3, .a = {.alignment = 2}, .b = {.alignment = 4}, .d = {.alignment = 4}})) ==
        "m=1 n=2 k=3 a=f16 b=f16 d=f16 align_a=2 align_b=4 align_d=4");
  CHECK(to_string(
            normalise({.m = 8,
                       .n = 16,
                       .k = 24,
                       .a = {.type = bf16, .ld = 32},
                       .b = {.type = bf16, .layout = Layout::column_major},
                       .d = {f32},
                       .alpha = 0.5,
                       .beta = not_a_number,
                       .epilogue = {.bias = Bias::along_n, .activation = Activation::leaky_relu, .slope = 0.25}})) ==
        "m=8 n=16 k=24 a=bf16 b=bf16 d=f32 layout_b=column_major lda=32 alpha=0.5 beta=nan bias=along_n "
        "activation=leaky_relu slope=0.25");
  CHECK(to_string(normalise({.m = 8, .n = 8, .k = 8, .epilogue = {.activation = Activation::leaky_relu}})) ==
        "m=8 n=8 k=8 a=f16 b=f16 d=f16 activation=leaky_relu");
  CHECK(to_string(
            normalise({.m = 8, .n = 8, .k = 8, .a = {e4m3}, .b = {e5m2}, .accumulation = Accumulation::promoted})) ==
        "m=8 n=8 k=8 a=e4m3 b=e5m2 d=f16 accumulation=promoted align_a=8 align_b=8");
  const std::string scaled = "m=16 n=16 k=16 a=e4m3 b=e4m3 d=bf16 scaling_a=vector";
  CHECK(to_string(parse_problem(scaled)) == scaled);
  CHECK(parse_problem(scaled).a.scaling == Scaling::vector);
  CHECK(parse_problem(scaled + " scaling_b=vector").b.scaling == Scaling::vector);
  CHECK_THAT(test::refusal(ErrorCode::invalid_problem, [&] { parse_problem(scaled + " scaling_b=rows"); }),
             ContainsSubstring("unknown scaling \"rows\": use value, vector"));
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

TEST_CASE("Names of types, layouts and activations read back", "[problem]") {
  for (DataType x : {f16, bf16, f32}) CHECK(parse_data_type(to_string(x)) == x);
  for (Layout x : {Layout::row_major, Layout::column_major}) CHECK(parse_layout(to_string(x)) == x);
  for (Accumulation x : {Accumulation::fast, Accumulation::promoted}) CHECK(parse_accumulation(to_string(x)) == x);
  for (Scaling x : {Scaling::value, Scaling::vector, Scaling::block_1x128, Scaling::block_128x128})
    CHECK(parse_scaling(to_string(x)) == x);
  for (BatchMode x : {BatchMode::strided, BatchMode::pointers}) CHECK(parse_batch_mode(to_string(x)) == x);
  CHECK_FALSE(parse_batch_mode("array"));
  CHECK_FALSE(parse_scaling("rows"));
  CHECK_FALSE(parse_data_type("fp16"));
  CHECK_FALSE(parse_layout(""));
  CHECK_FALSE(parse_activation("Relu"));
  CHECK_FALSE(parse_accumulation("slow"));
  CHECK(size_of(f16) == 2);
  CHECK(size_of(bf16) == 2);
  CHECK(size_of(f32) == 4);
}
