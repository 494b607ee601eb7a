// A problem as a line of text: what is printed, what is read back, and what is refused there.
#include <string>
#include <utility>

#include "catch.hpp"
#include "core/data_types.hpp"
#include "core/problem.hpp"
#include "errors.hpp"
#include "problem_refusal.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

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
    CHECK_THAT(refusal(ErrorCode::invalid_problem, [&] { parse_problem(twice); }), ContainsSubstring("a second time"));
  for (const char* text : {"m=64 n=64", "k=64 a=bf16", "m=0 k=0"})
    CHECK_THAT(refusal(ErrorCode::invalid_problem, [text] { parse_problem(text); }),
               ContainsSubstring("is missing: give m, n and k, or none of them"));
}

TEST_CASE("A type of C is undone by naming it automatic, which no other matrix is", "[problem]") {
  Problem p = parse_problem("m=1 n=1 k=1 a=f16 c=f32");
  CHECK(p.c.type == f32);
  set_field(p, "c", to_string(DataType::automatic));
  CHECK(p.c.type == DataType::automatic);
  CHECK(parse_problem("m=1 n=1 k=1 c=automatic").c.type == DataType::automatic);
  for (const char* field : {"a", "b", "d"})
    CHECK_THAT(refusal(ErrorCode::invalid_problem, [&] { set_field(p, field, "automatic"); }),
               ContainsSubstring("unknown type \"automatic\""));
  CHECK_THAT(refusal(ErrorCode::invalid_problem, [&] { set_field(p, "c", "f61"); }), ContainsSubstring("automatic"));
}

TEST_CASE("A field that there is not, and a number out of range, are refused with what there is", "[problem]") {
  Problem p;
  const auto refused = [&p](const char* name, const char* value) {
    return refusal(ErrorCode::invalid_problem, [&] { set_field(p, name, value); });
  };
  CHECK_THAT(refused("foo", "1"), ContainsSubstring("no field \"foo\": it has m, n, k, a, b, c, d, layout_a"));
  for (const char* number : {"1e-400", "1e999", "-1e999"})
    CHECK_THAT(refused("alpha", number), ContainsSubstring(std::string(number) + " is out of range"));
  CHECK_THAT(refused("m", "99999999999999999999"), ContainsSubstring("is out of range: give an integer of 64 bits"));
  CHECK_THAT(refused("align_a", "-4294967296"), ContainsSubstring("is out of range: give an integer of 32 bits"));
  CHECK_THAT(refused("alpha", "1e999x"), ContainsSubstring("is not a number"));
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
  CHECK_THAT(refusal(ErrorCode::invalid_problem, [&] { parse_problem(scaled + " scaling_b=rows"); }),
             ContainsSubstring("unknown scaling \"rows\": use value, vector"));
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
