// A call's pointers: alignment, null, overlap.
#include <array>
#include <limits>
#include <string>

#include "catch.hpp"
#include "core/operands.hpp"
#include "core/problem.hpp"
#include "problem_refusal.hpp"

using namespace jitgemm;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Memory for the operands of 8 x 8 x 8 in f16, apart from each other.
struct Memory {
  alignas(256) std::array<char, 4096> bytes{};
  Operands operands{.a = &bytes[256], .b = &bytes[512], .c = &bytes[768], .d = &bytes[1024], .bias = &bytes[1280]};

  std::string refusal(const Problem& problem) const {
    return test::problem_refusal(ErrorCode::invalid_operand, [&] { with_operands(normalise(problem), operands); });
  }
};
const Problem small{.m = 8, .n = 8, .k = 8, .beta = 1, .epilogue = {.bias = Bias::along_n}};

}  // namespace

TEST_CASE("Alignment of a call comes from its pointers", "[problem]") {
  Memory memory;
  Problem problem = small;
  problem.a.alignment = 2;
  CHECK(with_operands(normalise(problem), memory.operands).a.alignment == 16);
  memory.operands.b = static_cast<const char*>(memory.operands.b) + 4;
  memory.operands.d = static_cast<char*>(memory.operands.d) + 2;
  const NormalProblem p = with_operands(normalise(problem), memory.operands);
  CHECK(p.b.alignment == 4);
  CHECK(p.c.alignment == 16);
  CHECK(p.d.alignment == 2);
}

TEST_CASE("Null pointers are refused only where they are used", "[problem]") {
  const auto without = [](auto change, Problem problem) {
    Memory memory;
    change(memory.operands);
    return memory.refusal(problem);
  };
  const auto no_a = [](Operands& o) { o.a = nullptr; };
  const auto no_b = [](Operands& o) { o.b = nullptr; };
  const auto no_c = [](Operands& o) { o.c = nullptr; };
  const auto no_d = [](Operands& o) { o.d = nullptr; };
  const auto no_bias = [](Operands& o) { o.bias = nullptr; };
  CHECK_THAT(without(no_a, small), ContainsSubstring("A is null"));
  CHECK_THAT(without(no_b, small), ContainsSubstring("B is null"));
  CHECK_THAT(without(no_c, small), ContainsSubstring("C is null"));
  CHECK_THAT(without(no_d, small), ContainsSubstring("D is null"));
  CHECK_THAT(without(no_bias, small), ContainsSubstring("bias is null"));

  const auto with = [](auto change) {
    Problem problem = small;
    change(problem);
    return problem;
  };
  const Problem no_alpha = with([](Problem& p) { p.alpha = 0; }), no_depth = with([](Problem& p) { p.k = 0; });
  for (const Problem& p : {no_alpha, no_depth}) {
    CHECK(without(no_a, p) == "no error");
    CHECK(without(no_b, p) == "no error");
  }
  CHECK(without(no_c, with([](Problem& p) { p.beta = 0; })) == "no error");
  CHECK_THAT(without(no_c, with([](Problem& p) { p.beta = not_a_number; })), ContainsSubstring("C is null"));
  CHECK(without(no_bias, with([](Problem& p) { p.epilogue.bias = Bias::none; })) == "no error");
  const auto none = [](Operands& o) { o = {}; };
  CHECK(without(none, with([](Problem& p) { p.m = 0; })) == "no error");
  CHECK(without(none, with([](Problem& p) { p.n = 0; })) == "no error");
}

TEST_CASE("Pointers below the element's alignment are refused", "[problem]") {
  Memory memory;
  memory.operands.a = static_cast<const char*>(memory.operands.a) + 1;
  CHECK_THAT(memory.refusal(small), ContainsSubstring("A is not a multiple of 2 bytes"));
  Memory f32_memory;
  Problem problem{.m = 4, .n = 4, .k = 4, .d = {f32}};
  f32_memory.operands.d = static_cast<char*>(f32_memory.operands.d) + 2;
  CHECK_THAT(f32_memory.refusal(problem), ContainsSubstring("D is not a multiple of 4 bytes"));
}

TEST_CASE("D may be C exactly and overlap nothing else", "[problem]") {
  Memory memory;
  const Operands apart = memory.operands;
  const auto shifted = [](void* pointer, int bytes) { return static_cast<void*>(static_cast<char*>(pointer) + bytes); };
  memory.operands.c = apart.d;
  CHECK(memory.refusal(small) == "no error");
  Problem wider = small;
  wider.c.ld = 16;
  CHECK_THAT(memory.refusal(wider), ContainsSubstring("D overlaps C"));
  memory.operands.c = shifted(apart.d, 2);
  CHECK_THAT(memory.refusal(small), ContainsSubstring("D overlaps C"));

  memory.operands = apart;
  memory.operands.a = shifted(apart.d, -126);
  CHECK_THAT(memory.refusal(small), ContainsSubstring("D overlaps A"));
  memory.operands.a = shifted(apart.d, -128);  // ends where D begins
  CHECK(memory.refusal(small) == "no error");
  memory.operands.b = shifted(apart.d, 126);
  CHECK_THAT(memory.refusal(small), ContainsSubstring("D overlaps B"));
  memory.operands.b = shifted(apart.d, 128);
  CHECK(memory.refusal(small) == "no error");
  memory.operands.bias = apart.d;
  CHECK_THAT(memory.refusal(small), ContainsSubstring("D overlaps bias"));

  memory.operands = apart;
  memory.operands.a = memory.operands.b;  // inputs may share
  CHECK(memory.refusal(small) == "no error");
  Problem unread = small;
  unread.beta = 0;
  memory.operands.c = shifted(apart.d, 2);
  CHECK(memory.refusal(unread) == "no error");
}

TEST_CASE("D may lie beside an operand in the rows of one array", "[problem]") {
  // Of an array of 4 rows of 32 elements: A's four columns from 8 on, D's eight.
  Memory memory;
  char* const array = static_cast<char*>(memory.operands.d);
  Problem slices{.m = 4, .n = 8, .k = 4, .a = {.ld = 32}, .d = {.ld = 32}};
  const auto beside = [&](int column_of_d) {
    memory.operands.a = array + 8 * 2;
    memory.operands.d = array + column_of_d * 2;
    return memory.refusal(slices);
  };
  CHECK(beside(0) == "no error");
  CHECK(beside(12) == "no error");
  CHECK(beside(24) == "no error");
  for (const int column : {1, 4, 8, 11}) CHECK_THAT(beside(column), ContainsSubstring("D overlaps A"));
  CHECK_THAT(beside(32 + 4), ContainsSubstring("D overlaps A"));  // a row further down
  CHECK(beside(32 + 12) == "no error");
  CHECK(beside(28) == "no error");  // its rows end in the next one's first columns
  CHECK_THAT(beside(33), ContainsSubstring("D overlaps A"));
  slices.d.ld = 16;
  CHECK_THAT(beside(12), ContainsSubstring("D overlaps A"));
  slices.d.ld = 32;
  slices.batch = 2, slices.a.stride = 0, slices.d.stride = 4 * 32;
  CHECK(beside(12) == "no error");
  slices.d.stride = 4 * 32 + 8;  // the second D lies in other columns
  CHECK_THAT(beside(12), ContainsSubstring("D overlaps A"));
}

TEST_CASE("Rows of two types may lie in one pitch, and a single row needs none", "[problem]") {
  // Rows of 64 bytes: four elements of A in f16, eight of D in f32.
  Memory memory;
  char* const array = static_cast<char*>(memory.operands.d);
  Problem slices{.m = 4, .n = 8, .k = 4, .a = {.ld = 32}, .d = {.type = f32, .ld = 16}};
  const auto at = [&](int byte_of_a, int byte_of_d) {
    memory.operands.a = array + byte_of_a;
    memory.operands.d = array + byte_of_d;
    return memory.refusal(slices);
  };
  CHECK(at(0, 8) == "no error");
  CHECK(at(40, 8) == "no error");
  CHECK(at(32, 0) == "no error");
  CHECK_THAT(at(0, 4), ContainsSubstring("D overlaps A"));
  CHECK_THAT(at(32, 4), ContainsSubstring("D overlaps A"));
  CHECK_THAT(at(2, 36), ContainsSubstring("D overlaps A"));  // D's rows end in A's columns of the next
  // One row of each.
  slices = {.m = 1, .n = 8, .k = 4, .a = {.ld = 8}, .d = {.ld = 8}};
  CHECK(at(0, 8) == "no error");
  CHECK(at(16, 0) == "no error");
  CHECK_THAT(at(0, 4), ContainsSubstring("D overlaps A"));
  CHECK_THAT(at(14, 0), ContainsSubstring("D overlaps A"));
}

TEST_CASE("A workspace of the caller's is aligned and apart from the operands", "[problem]") {
  Memory memory;
  memory.operands.workspace = &memory.bytes[2048];
  memory.operands.workspace_bytes = 1024;
  CHECK(memory.refusal(small) == "no error");
  memory.operands.workspace = &memory.bytes[2048 + 16];
  CHECK_THAT(memory.refusal(small), ContainsSubstring("workspace is not a multiple of 256 bytes"));
  memory.operands.workspace = &memory.bytes[512];
  CHECK_THAT(memory.refusal(small), ContainsSubstring("workspace overlaps"));
  CHECK_THAT(memory.refusal(small), !ContainsSubstring("or C's pointer"));
}

TEST_CASE("Scales belong to 8-bit floating-point operands", "[problem]") {
  alignas(4) float scale = 2;
  Memory memory;
  memory.operands.scale_a = &scale;
  CHECK_THAT(memory.refusal(small), ContainsSubstring("scale_a is given for an operand"));
  const Problem fp8{.m = 8, .n = 8, .k = 8, .a = {e4m3}, .b = {e5m2}, .d = {f16}};
  CHECK(memory.refusal(fp8) == "no error");
  memory.operands.scale_d = &scale;
  CHECK_THAT(memory.refusal(fp8), ContainsSubstring("scale_d"));
  memory.operands.scale_d = nullptr;
  memory.operands.scale_a = reinterpret_cast<const float*>(static_cast<const char*>(memory.operands.d) + 4);
  CHECK_THAT(memory.refusal(fp8), ContainsSubstring("D overlaps scale_a"));
  memory.operands.scale_a = reinterpret_cast<const float*>(reinterpret_cast<const char*>(&memory.bytes[2048]) + 2);
  CHECK_THAT(memory.refusal(fp8), ContainsSubstring("scale_a is not a multiple of 4"));
  memory.operands.scale_a = &scale;
  const Problem to_f32{.m = 8, .n = 8, .k = 8, .a = {s8}, .b = {s8}, .d = {f32}};
  CHECK(memory.refusal(to_f32) == "no error");
  CHECK_THAT(memory.refusal({.m = 8, .n = 8, .k = 8, .a = {s8}, .b = {s8}, .d = {s32}}),
             ContainsSubstring("scale_a is given for an operand"));
}

TEST_CASE("Scales of rows and 128 of k begin at a multiple of 16 bytes", "[problem]") {
  Problem problem{.m = 8, .n = 16, .k = 8, .a = {e4m3}, .b = {e5m2}, .d = {f16}};
  problem.a.scaling = Scaling::block_1x128;
  problem.b.scaling = Scaling::block_128x128;
  Memory memory;
  const auto at = [&](std::size_t byte) { return reinterpret_cast<const float*>(&memory.bytes[byte]); };
  memory.operands.scale_a = at(2048 + 4);
  memory.operands.scale_b = at(2048 + 4);
  CHECK_THAT(memory.refusal(problem), ContainsSubstring("scale_a is not a multiple of 16 bytes: align the pointer"));
  memory.operands.scale_a = at(2048 + 16);
  CHECK(memory.refusal(problem) == "no error");
}

TEST_CASE("A vector of scales is there, aligned and apart from D to its end", "[problem]") {
  Problem problem{.m = 8, .n = 16, .k = 8, .a = {e4m3}, .b = {e5m2}, .d = {f16}};
  problem.a.scaling = problem.b.scaling = Scaling::vector;
  Memory memory;
  Operands& operands = memory.operands;
  operands.scale_a = reinterpret_cast<const float*>(&memory.bytes[2048]);
  CHECK_THAT(memory.refusal(problem), ContainsSubstring("scale_b is null but the problem uses it"));
  operands.scale_b = reinterpret_cast<const float*>(&memory.bytes[2052]);  // inputs may share
  CHECK(memory.refusal(problem) == "no error");
  operands.scale_a = nullptr;
  CHECK_THAT(memory.refusal(problem), ContainsSubstring("scale_a is null but the problem uses it"));
  for (const bool depth : {false, true}) {
    Problem nothing = problem;
    (depth ? nothing.k : nothing.m) = 0;
    operands.scale_a = operands.scale_b = nullptr;
    CHECK(memory.refusal(nothing) == "no error");
    nothing = problem;
    nothing.alpha = 0;
    CHECK(memory.refusal(nothing) == "no error");
  }
  const auto before_d = [&](std::int64_t elements) {
    return reinterpret_cast<const float*>(static_cast<const char*>(operands.d) - elements * 4);
  };
  operands.scale_b = reinterpret_cast<const float*>(&memory.bytes[2048]);
  operands.scale_a = before_d(8);
  CHECK(memory.refusal(problem) == "no error");
  operands.scale_a = before_d(7);
  CHECK_THAT(memory.refusal(problem), ContainsSubstring("D overlaps scale_a"));
  operands.scale_a = operands.scale_b;
  operands.scale_b = before_d(16);
  CHECK(memory.refusal(problem) == "no error");
  operands.scale_b = before_d(15);
  CHECK_THAT(memory.refusal(problem), ContainsSubstring("D overlaps scale_b"));
  operands.scale_b = reinterpret_cast<const float*>(&memory.bytes[2050]);
  CHECK_THAT(memory.refusal(problem), ContainsSubstring("scale_b is not a multiple of 4 bytes"));
}

TEST_CASE("Ends or numbers of rows belong to a problem with groups", "[problem][groups]") {
  const std::int32_t rows = 8;
  Memory memory;
  memory.operands.group_rows = &rows;
  CHECK_THAT(memory.refusal(small),
             ContainsSubstring("group_rows is given for a problem without groups: set its grouping, or pass none"));
  for (const Grouping grouping : {Grouping::offsets, Grouping::counts, Grouping::along_k}) {
    Problem grouped = small;
    grouped.grouping = grouping;
    CHECK(memory.refusal(grouped) == "no error");
  }
}
