// Problems that are refused, for their sizes, types, scalars, scales, leading dimensions or alignments.
#include <cstddef>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/data_types.hpp"
#include "core/problem.hpp"
#include "problem_refusal.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("Sizes outside of 0 to 2^31 - 1 are refused", "[problem]") {
  CHECK_THAT(problem_refusal({.m = -1}), ContainsSubstring("m = -1"));
  CHECK_THAT(problem_refusal({.n = largest_size + 1}), ContainsSubstring("n = 2147483648"));
  CHECK_THAT(problem_refusal({.k = -5}), ContainsSubstring("k = -5"));
  CHECK_NOTHROW(normalise({.m = largest_size, .n = 1 << 17, .k = 1 << 17}));
  CHECK_NOTHROW(normalise({.m = 1 << 17, .n = largest_size, .k = 1 << 17}));
  CHECK_NOTHROW(normalise({.m = 1 << 17, .n = 1 << 17, .k = largest_size}));
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
        CHECK((problem_refusal({.m = 1, .n = 1, .k = 1, .a = {a}, .b = {b}, .d = {d}}) == "no error") == expected);
        accepted += expected;
      }
  CHECK(accepted == 6 + 20 + 2 + 1 + 4);
  CHECK_THAT(problem_refusal({.a = {f16}, .b = {bf16}}),
             ContainsSubstring("a = f16 by b = bf16: with this a use b = f16"));
  CHECK_THAT(problem_refusal({.a = {e5m2}, .b = {s8}}), ContainsSubstring("with this a use b = e4m3 or e5m2"));
  CHECK_THAT(problem_refusal({.a = {s32}, .b = {s8}}), ContainsSubstring("use a = " + input_type_names()));
  CHECK_THAT(problem_refusal({.a = {tf32}, .b = {tf32}}), ContainsSubstring("into d = f16: use f32"));
  CHECK_THAT(problem_refusal({.a = {e4m3}, .b = {e5m2}, .d = {s32}}),
             ContainsSubstring("use f16, bf16, f32, e4m3 or e5m2"));
  CHECK_THAT(problem_refusal({.a = {DataType(77)}, .b = {DataType(77)}}), ContainsSubstring("an unknown type"));
}

TEST_CASE("Integers have whole scalars and no curved activations", "[problem]") {
  const Problem integers{.m = 4, .n = 4, .k = 4, .a = {s8}, .b = {s8}, .d = {s32}};
  const auto with = [&](auto change) {
    Problem problem = integers;
    change(problem);
    return problem_refusal(problem);
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
    return problem_refusal(problem);
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

TEST_CASE("Leading dimensions that are too small or too large are refused", "[problem]") {
  CHECK_THAT(problem_refusal({.m = 4, .n = 4, .k = 4, .a = {.ld = 3}}), ContainsSubstring("lda = 3"));
  CHECK_THAT(problem_refusal({.m = 4, .n = 4, .k = 4, .b = {.ld = -4}}), ContainsSubstring("ldb = -4"));
  CHECK_THAT(problem_refusal({.m = 4, .n = 4, .k = 4, .c = {.ld = 3}, .beta = 1}), ContainsSubstring("ldc = 3"));
  CHECK_THAT(problem_refusal({.m = 4, .n = 4, .k = 4, .d = {.ld = 3}}), ContainsSubstring("ldd = 3"));
  const std::int64_t huge = std::int64_t(1) << 49;
  CHECK_NOTHROW(normalise({.m = 1, .n = 4, .k = 4, .a = {.ld = huge}}));
  CHECK_THAT(problem_refusal({.m = 4, .n = 4, .k = 4, .a = {.ld = huge}}), ContainsSubstring("larger than 2^50 bytes"));
  CHECK_THAT(problem_refusal({.m = 1, .n = 4, .k = 4, .d = {.type = f32, .ld = huge}}),
             ContainsSubstring("larger than 2^50 bytes"));
}

TEST_CASE("Alignments that are no power of two from the element's size to 16 are refused", "[problem]") {
  for (int align : {0, -16, 1, 3, 12, 32}) {
    CHECK_THAT(problem_refusal({.m = 4, .n = 4, .k = 4, .a = {.alignment = align}}), ContainsSubstring("align_a"));
    CHECK_THAT(problem_refusal({.m = 4, .n = 4, .k = 4, .b = {.alignment = align}}), ContainsSubstring("align_b"));
  }
  CHECK_THAT(problem_refusal({.m = 4, .n = 4, .k = 4, .d = {.type = f32, .alignment = 2}}),
             ContainsSubstring("from 4 to 16"));
}

TEST_CASE("A slope is no NaN, of whatever activation", "[problem]") {
  for (const DataType type : {f16, f64})
    for (const Activation activation : {Activation::leaky_relu, Activation::relu}) {
      Problem problem{.m = 1, .n = 1, .k = 1, .a = {type}, .b = {type}, .d = {type}};
      problem.epilogue = {.activation = activation, .slope = not_a_number};
      CHECK_THAT(problem_refusal(problem), ContainsSubstring("slope = nan is not a number: give one"));
      problem.epilogue.slope = -infinity;
      CHECK(problem_refusal(problem) == "no error");
    }
  CHECK(normalise({.epilogue = {.activation = Activation::leaky_relu, .slope = -infinity}}).epilogue.slope ==
        -infinity);
}

TEST_CASE("Scales of blocks belong to both operands of 8-bit floating point", "[problem]") {
  const auto with = [](auto change) {
    Problem problem{.m = 4, .n = 4, .k = 4, .a = {e4m3}, .b = {e5m2}, .d = {bf16}};
    problem.a.scaling = Scaling::block_1x128;
    problem.b.scaling = Scaling::block_128x128;
    change(problem);
    return problem_refusal(problem);
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
