// Groups of rows as problems: what is refused, what is chosen, what they are called in C.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "c_context.hpp"
#include "catch.hpp"
#include "context_fixtures.hpp"
#include "core/problem.hpp"
#include "gemm_cases.hpp"
#include "group_cases.hpp"
#include "jitgemm/error.hpp"
#include "problem_refusal.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;
using groups::problem_of;
using groups::TestDevice;

TEST_CASE("What no kernel does with groups is refused, and says what to do", "[groups][problem]") {
  const Problem problem = problem_of(64, 64, {100, 28}, Layout::column_major);
  CHECK(problem_refusal(problem) == "no error");
  Problem p = problem;
  p.a.layout = Layout::column_major;
  CHECK_THAT(problem_refusal(p), ContainsSubstring("give a row-major A"));
  p = problem;
  p.expected_m = -1;
  CHECK_THAT(problem_refusal(p), ContainsSubstring("expected_m = -1"));
  p = problem;
  for (Matrix* matrix : {&p.a, &p.d}) {
    matrix->stride = 0;
    CHECK(problem_refusal(p) == "no error");
    matrix->stride = 4096;
    CHECK_THAT(problem_refusal(p), ContainsSubstring("groups by offsets are parts of one matrix"));
    *matrix = matrix == &p.a ? problem.a : problem.d;
  }
  p.c.stride = 4096;  // which nobody reads
  CHECK(problem_refusal(p) == "no error");
  p.beta = 1;
  CHECK_THAT(problem_refusal(p), ContainsSubstring("stride_c = 4096"));
  p = problem;
  p.grouping = Grouping(9);
  CHECK_THAT(problem_refusal(p), ContainsSubstring("unknown grouping: use none, offsets, counts or along_k"));
  for (const std::int64_t expected : {20, -1}) {
    p = {.m = 8, .n = 8, .k = 8, .batch = 2, .expected_m = expected};
    CHECK_THAT(problem_refusal(p), ContainsSubstring("use grouping = offsets, counts or along_k, or expected_m = 0"));
  }

  TestDevice device(GemmDevice::emulator());
  const auto refusal = [&](const char* config) {
    return problem_refusal(ErrorCode::invalid_config,
                           [&] { device.context.plan(problem, parse_kernel_config(config)); });
  };
  for (const char* const schedule : {"data_parallel", "split_k splits=2", "stream_k grid=3"})
    CHECK_THAT(refusal((std::string("sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=") + schedule).c_str()),
               ContainsSubstring("groups, whose tiles the device counts, are persistent"));
  CHECK_THAT(refusal("sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=persistent grid=3 pack=a"),
             ContainsSubstring("no operands of groups are packed"));
  CHECK_THAT(problem_refusal(ErrorCode::invalid_operand,
                             [&] {
                               std::vector<char> memory(1 << 16);
                               device.context.gemm(
                                   problem,
                                   {.a = memory.data(), .b = memory.data() + 20000, .d = memory.data() + 40000});
                             }),
             ContainsSubstring("group_rows is null"));
}

TEST_CASE("Groups that are rows of one matrix have operands of epilogues so, too", "[groups][custom_epilogue]") {
  Problem problem = problem_of(64, 64, {100, 28}, Layout::column_major);
  problem.epilogue.function = define_epilogue(parse_epilogue(
      "// operand in residual matrix f16\n// operand in scale along_m f16\n// operand in bias along_n f16\n"
      "__device__ float epilogue(float x, const Args& args, Out&) { return x * args.scale + args.residual + args.bias; "
      "}\n"));
  TestDevice device(GemmDevice::emulator());
  const auto memory = device.buffer(1 << 16, f16, 0, nullptr);
  const auto table = device.buffer(2, s32, 0, nullptr);  // groups without rows
  const auto refusal = [&](const std::array<std::int64_t, 3>& strides) {
    char* const at = static_cast<char*>(memory.to_device());
    EpilogueValue values[3];
    for (std::size_t i = 0; i < 3; ++i) values[i] = {.in = at + 100000, .stride = strides[i]};
    const Operands operands{.a = at,
                            .b = at + 30000,
                            .d = at + 70000,
                            .group_rows = reinterpret_cast<const std::int32_t*>(table.to_device()),
                            .epilogue = values,
                            .epilogue_count = 3};
    return problem_refusal(ErrorCode::invalid_operand, [&] { device.context.gemm(problem, operands); });
  };
  CHECK(refusal({packed_stride, packed_stride, packed_stride}) == "no error");
  CHECK(refusal({0, 0, 64}) == "no error");  // of columns each group has its own
  CHECK_THAT(refusal({128 * 64, 0, 0}),
             ContainsSubstring("stride_residual = 8192") && ContainsSubstring("leave it away"));
  CHECK_THAT(refusal({0, 128, 0}), ContainsSubstring("stride_scale = 128") && ContainsSubstring("rows of one"));
  CHECK_THAT(refusal({-7, 0, 0}), ContainsSubstring("stride_residual = -7"));
}

TEST_CASE("A problem with groups is its text, and what does not matter is left out", "[groups][problem]") {
  Problem p = problem_of(64, 64, {100, 28}, Layout::column_major);
  p.expected_m = 20;
  const NormalProblem normal = normalise(p);
  CHECK(normal.expected_m == 24);  // a power of two, or half as much again
  CHECK(normal.a.stride == 0);
  CHECK(normal.d.stride == 0);
  CHECK(normal.b.stride == 64 * 64);
  CHECK(to_string(p) ==
        "m=128 n=64 k=64 a=bf16 b=bf16 d=bf16 layout_b=column_major batch=2 grouping=offsets expected_m=20");
  CHECK(equal(normalise(parse_problem(to_string(normal))), normal));
  p.a.stride = 0;
  CHECK(equal(normalise(p), normal));
}

TEST_CASE("Tiles are chosen by what groups are expected to have", "[groups][plan]") {
  const TemporaryDirectory cache;
  Context context(compile_only(cache, "sm_90a"));
  const auto chosen = [&](std::int64_t m, std::int64_t groups, std::int64_t expected) {
    Problem p = problem_of(4096, 7168, {}, Layout::column_major);
    p.m = m, p.batch = groups, p.expected_m = expected;
    return context.plan(p);
  };
  // No tile has many more rows than a group; few rows are the MMA's columns.
  for (const std::int64_t rows : {1, 8, 16, 24, 48}) {
    const Plan plan = chosen(256 * rows, 256, 0);
    CAPTURE(rows, to_string(plan.config));
    CHECK(plan.config.main_loop == MainLoop::sm90);
    CHECK(plan.config.schedule == Schedule::persistent);
    const KernelConfig& c = plan.config;
    CHECK((c.swap_ab || rows > 24));
    CHECK((c.swap_ab ? c.block_n * c.cluster_n : c.block_m * c.cluster_m) <= std::max<std::int64_t>(16, 2 * rows));
    CHECK_THAT(plan.explain(), ContainsSubstring("256 by offsets"));
  }
  // Many: 256 x 128 or as much.
  const KernelConfig many = chosen(8 * 8192, 8, 0).config;
  CHECK(many.block_m * many.block_n >= 128 * 128);
  // What is expected counts, not what there may be.
  CHECK(chosen(4096, 256, 8).config == chosen(400, 256, 8).config);
  CHECK(chosen(4096, 256, 8).config == chosen(4096, 256, 7).config);
  // A row of fewer groups than there are: the bytes of those that have rows.
  CHECK(chosen(8, 256, 1).predicted.memory_us < 0.1 * chosen(256, 256, 1).predicted.memory_us);
}

TEST_CASE("The C functions multiply groups, and say what their table was", "[groups][c][emulator]") {
  const TemporaryDirectory cache;
  const CContext context(emulator_options(cache));
  jitgemm_problem problem = made_by<jitgemm_problem>(jitgemm_problem_init);
  problem.m = 6, problem.n = 8, problem.k = 16, problem.batch = 2;
  problem.grouping = JITGEMM_GROUPING_OFFSETS;
  const std::vector<std::uint16_t> a(6 * 16, 0x3c00), b(2 * 16 * 8, 0x3c00);  // 1.0
  std::vector<std::uint16_t> d(6 * 8, 0xffff);
  std::vector<std::int32_t> ends{2, 5};
  jitgemm_operands operands = made_by<jitgemm_operands>(jitgemm_operands_init);
  operands.a = a.data(), operands.b = b.data(), operands.d = d.data(), operands.group_rows = ends.data();
  REQUIRE(jitgemm_gemm(context, &problem, nullptr, &operands, nullptr) == JITGEMM_STATUS_SUCCESS);
  CHECK(jitgemm_check(context, nullptr) == JITGEMM_STATUS_SUCCESS);
  for (std::size_t i = 0; i < d.size(); ++i) CHECK(d[i] == (i < 5 * 8 ? 0x4c00 : 0xffff));  // 16.0
  ends = {4, 3};
  REQUIRE(jitgemm_gemm(context, &problem, nullptr, &operands, nullptr) == JITGEMM_STATUS_SUCCESS);
  CHECK(jitgemm_check(context, nullptr) == JITGEMM_STATUS_INVALID_OPERAND);
  CHECK(jitgemm_check(context, nullptr) == JITGEMM_STATUS_SUCCESS);
}
