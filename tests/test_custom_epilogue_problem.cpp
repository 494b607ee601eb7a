// Epilogues of the caller's own as part of a problem: what they are called, what a launch is given, what they cost a
// plan.
#include <cstdint>
#include <string>
#include <vector>

#include "catch.hpp"
#include "context_fixtures.hpp"
#include "core/problem.hpp"
#include "custom_epilogue_cases.hpp"
#include "errors.hpp"
#include "jit/arguments.hpp"
#include "jitgemm/jitgemm.hpp"
#include "random.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using namespace jitgemm::test::own_epilogues;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("An epilogue tunes nothing, and is served by what its problem without it was tuned to",
          "[custom_epilogue][emulator]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  const Problem plain = problem_of(40, 48, 64);
  ContextOptions options = on_emulator(cache.path());
  options.tuning = Tuning::on;
  TestDevice device(options);
  const KernelConfig best = device.context.tune(plain).plan.config;
  const auto tuned = device.context.counters().tuned;
  Problem own = plain;
  own.epilogue.function = define_epilogue(parse_epilogue(identity.text));
  CHECK(device.context.plan(own).config == best);
  CHECK(run(device, plain, identity, nullptr, random) == "");
  CHECK(device.context.counters().tuned == tuned);
  CHECK_THAT(device.context.plan(own).why, !ContainsSubstring("measure first"));
}

TEST_CASE("What an epilogue's matrices move is part of what a call is expected to take", "[custom_epilogue]") {
  Problem plain = problem_of(4096, 4096, 64, f16), own = plain;
  own.epilogue.function = define_epilogue(parse_epilogue(
      "// operand in a matrix f16\n// operand out b matrix f32\n// operand in c along_n f32\n// operand in s scalar\n"
      "__device__ float epilogue(float x, const Args& args, Out& out) { out.b = x; return x + args.a + args.c; }"));
  CHECK(minimum_bytes(normalise(own)) - minimum_bytes(normalise(plain)) == 4096.0 * 4096 * 6 + 4096 * 4);
  CHECK(epilogue_bytes_per_sum(own) == 2 + 6);
  const TemporaryDirectory cache;
  Context context(compile_only(cache, "sm_90a"));
  CHECK(context.plan(own).predicted.us > 1.5 * context.plan(plain).predicted.us);
}

TEST_CASE("A launch that begins further down and right in D has its operands from there on", "[custom_epilogue]") {
  Problem problem = problem_of(64, 48, 32);
  problem.batch = 2;
  const EpilogueFunction function = parse_epilogue(everything.text);
  problem.epilogue.function = define_epilogue(function);
  const NormalProblem p = normalise(problem);
  alignas(16) static char memory[4096];
  EpilogueValue values[6];
  for (EpilogueValue& value : values) value = {.in = memory, .out = memory + 2048, .scalar = 3};
  values[0].ld = 50;
  const Operands operands{.epilogue = values, .epilogue_count = 6};
  const auto at = [&](std::int64_t row, std::int64_t column) {
    return make_custom_epilogue_arguments({}, p, operands, row, column);
  };
  const device::CustomEpilogueArguments first = at(0, 0), part = at(5, 8), odd = at(5, 7);
  CHECK(part.first_row == 5);
  CHECK(part.first_column == 8);
  CHECK(first.operands[0].data == memory);
  CHECK(part.operands[0].data == memory + (5 * 50 + 8) * 2);  // residual, bf16
  CHECK(part.operands[0].ld == 50);
  CHECK(part.operands[0].stride == 64 * 50);
  CHECK(part.operands[1].data == memory + 8 * 2);  // bias, f16, along n
  CHECK(part.operands[1].stride == 0);
  CHECK(part.operands[2].data == memory + 2048 + (5 * 48 + 8) * 4);  // before, f32, out
  CHECK(part.operands[3].data == memory + 5 * 4);                    // scale, f32, along m
  CHECK(part.operands[4].data == nullptr);
  CHECK(part.operands[4].scalar.f32 == 3);
  CHECK(part.operands[0].in_pairs == 1);
  CHECK(odd.operands[0].in_pairs == 0);
}

TEST_CASE("Text, digest and problem say the same in every process", "[custom_epilogue]") {
  const EpilogueFunction function = parse_epilogue(everything.text);
  REQUIRE(function.operands.size() == 6);
  CHECK(function.operands[0].name == "residual");
  CHECK(function.operands[0].type == bf16);
  CHECK(function.operands[2].output);
  CHECK(function.operands[3].shape == OperandShape::along_m);
  CHECK(to_string(function) == everything.text);
  const std::uint64_t digest = define_epilogue(function);
  CHECK(digest == define_epilogue(function));
  CHECK(to_string(epilogue_of(digest)) == everything.text);
  CHECK(define_epilogue(parse_epilogue(identity.text)) == 7605484082869353996u);  // in databases, for good
  Problem problem = problem_of(8, 8, 8);
  problem.epilogue.function = digest;
  CHECK(parse_problem(to_string(problem)).epilogue.function == digest);
  EpilogueFunction other = function;
  other.operands[0].type = f16;
  CHECK(define_epilogue(other) != digest);
}

TEST_CASE("An epilogue beside another, unknown, or with other values than it has, is refused", "[custom_epilogue]") {
  const TemporaryDirectory cache;
  Context context(on_emulator(cache.path()));
  Problem problem = problem_of(8, 8, 8);
  problem.epilogue.function = 12345;
  const auto why = [&](const Problem& p) { return refusal(ErrorCode::invalid_problem, [&] { context.plan(p); }); };
  CHECK_THAT(why(problem),
             ContainsSubstring("no epilogue with the digest 12345") && ContainsSubstring("define_epilogue()"));
  problem.epilogue.function = define_epilogue(parse_epilogue(everything.text));
  Problem beside = problem;
  beside.beta = 1;
  CHECK_THAT(why(beside), ContainsSubstring("beta is given beside an epilogue of one's own"));
  beside = problem;
  beside.epilogue.bias = Bias::along_n;
  CHECK_THAT(why(beside), ContainsSubstring("bias is given beside"));
  beside = problem;
  beside.epilogue.activation = Activation::silu;
  CHECK_THAT(why(beside), ContainsSubstring("activation is given beside"));
  beside = problem;
  beside.a.type = beside.b.type = beside.d.type = f64;
  CHECK_THAT(why(beside), ContainsSubstring("operand residual is bf16 where sums are f64"));

  std::vector<float> memory(1024);
  EpilogueValue values[6] = {};
  for (EpilogueValue& value : values) value.in = value.out = memory.data() + 512;
  const auto of_call = [&](const EpilogueValue* given, std::size_t count) {
    return refusal(ErrorCode::invalid_operand, [&] {
      context.gemm(problem, {.a = memory.data(),
                             .b = memory.data() + 64,
                             .d = memory.data() + 128,
                             .epilogue = given,
                             .epilogue_count = count});
    });
  };
  CHECK_THAT(of_call(nullptr, 0), ContainsSubstring("has 6 operands and 0 values"));
  CHECK_THAT(of_call(values, 5), ContainsSubstring("has 6 operands and 5 values"));
  CHECK_THAT(of_call(values, 6), ContainsSubstring("before overlaps"));
  values[2].out = memory.data() + 256;
  values[5].out = memory.data() + 384;
  CHECK(of_call(values, 6) == "");
  values[0].in = nullptr;
  CHECK_THAT(of_call(values, 6), ContainsSubstring("residual is null"));
  values[0].in = reinterpret_cast<const char*>(memory.data()) + 1;
  CHECK_THAT(of_call(values, 6), ContainsSubstring("residual is not a multiple of 2 bytes"));
  values[0].in = memory.data() + 512;
  values[5].out = memory.data() + 128;
  CHECK_THAT(of_call(values, 6), ContainsSubstring("half overlaps D"));
  values[5].out = memory.data() + 2;
  CHECK_THAT(of_call(values, 6), ContainsSubstring("half overlaps A"));
  values[5].out = memory.data() + 384;
  values[2].ld = 7;
  CHECK_THAT(refusal(ErrorCode::invalid_problem, [&] { of_call(values, 6); }),
             ContainsSubstring("ld_before = 7 is less than"));
  values[2].ld = 0, values[2].stride = -7;
  problem.batch = 2;
  CHECK_THAT(refusal(ErrorCode::invalid_problem, [&] { of_call(values, 6); }),
             ContainsSubstring("stride_before = -7 is negative") && !ContainsSubstring("__"));
  problem.batch = 1, values[2].stride = packed_stride, values[2].ld = std::int64_t(1) << 60;
  CHECK_THAT(refusal(ErrorCode::invalid_problem, [&] { of_call(values, 6); }),
             ContainsSubstring("ld_before = 1152921504606846976 makes the matrix larger than 2^50 bytes"));
  values[2].ld = 0;
  problem.epilogue.function = 0;
  CHECK_THAT(of_call(values, 6), ContainsSubstring("an epilogue that the problem does not have"));
}
