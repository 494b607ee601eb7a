// What an epilogue of the caller's own may not be: one clear error each, with the caller's line.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "backend/cuda/pure_ptx.hpp"
#include "catch.hpp"
#include "core/epilogue_text.hpp"
#include "errors.hpp"
#include "jitgemm/jitgemm.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string head = "__device__ float epilogue(float x, const Args& args, Out& out) {\n";
std::string body(const std::string& text) { return head + text + "\n}\n"; }

struct Refusal {
  std::string text, why;
};

std::string why_undefined(const std::string& text) {
  return refusal(ErrorCode::invalid_problem, [&] { define_epilogue(parse_epilogue(text)); });
}

Problem problem_with(const std::string& text) {
  Problem problem{.m = 64, .n = 64, .k = 64, .b = {.layout = Layout::column_major}};
  problem.epilogue.function = define_epilogue(parse_epilogue(text));
  return problem;
}

ContextOptions options_of(Device device, const std::string& cache) {
  ContextOptions options;
  options.device = device;
  options.architecture = "sm_90a";
  options.tuning = Tuning::off;
  options.cache_dir = cache;
  return options;
}

std::string why_uncompiled(Context& context, const std::string& text) {
  return refusal(ErrorCode::compile_failed, [&] {
    context.compile(problem_with(text),
                    parse_kernel_config("sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=data_parallel"));
  });
}

}  // namespace

TEST_CASE("Words and brackets that have no place in an epilogue are refused at their line", "[custom_epilogue]") {
  const std::vector<Refusal> refusals = {
      {"#include <cuda.h>\n" + body("return x;"), "line 1: a preprocessor directive"},
      {body("return x;\n  %:define y 1"), "line 3: a preprocessor directive"},
      {body("return x; ?\?=pragma"), "line 2: a backslash or a trigraph"},
      {body("return x; // a comment that goes on \\\n + 1"), "line 2: a backslash or a trigraph"},
      {body("return x; /* ?\?/ */"), "line 2: a backslash or a trigraph"},
      {body("// a carriage return\r asm(0);\n return x;"), "line 2: a control character"},
      {"\r\n" + body("return x; // at a line's end\r"), ""},
      {body(std::string("return x; /* \0 */", 17)), "line 2: a control character"},
      {"struct S { float y; } s;\n" + body("return s.y;"), "line 1: a variable outlives"},
      {"struct { float y; } s;\n" + body("return s.y;"), "line 1: a variable outlives"},
      {"enum E { a, b } e;\n" + body("return e;"), "line 1: a variable outlives"},
      {"template <int N>\n__device__ float value;\n" + body("return value<3>;"), "line 1: a variable outlives"},
      {"template <int N> float value = N;\n" + body("return value<3>;"), "line 1: a variable outlives"},
      {"__device__ float f(float y[]) { return y[5]; }\n" + body("float y[1] = {x}; return f(y);"),
       "line 1: an array without a length"},
      {"template <typename T> struct V;\ntemplate <typename T> using W = T;\nstruct S;\nenum class E : int;\n"
       "template <typename T> constexpr T two = 2;\n" +
           body("return W<float>(x) * two<float>;"),
       ""},
      {body("float y\\\n = 1; return x;"), "line 2: a backslash or a trigraph"},
      {body("asm(\"trap;\"); return x;"), "line 2: \"asm\" has no place"},
      {body("const auto s = \"text\"; return x;"), "line 2: a string"},
      {body("return x + 'a';"), "line 2: a string or a character"},
      {body("return x + 1'000'000;"), ""},
      {body("__syncthreads(); return x;"), "line 2: \"__syncthreads\" is a name"},
      {body("return x + __expf(x);"), "\"__expf\" is a name"},
      {body("return x + threadIdx.x;"), "\"threadIdx\" has no place"},
      {body("static int n = 0; return x + n++;"), "\"static\" has no place"},
      {body("__shared__ float s; return x;"), "\"__shared__\" is a name"},
      {body("return jitgemm::device::value(x);"), "\"jitgemm\""},
      {body("l: goto l;"), "\"goto\" has no place"},
      {"__device__ int n;\n" + body("return x + n++;"), "line 1: a variable outlives the call"},
      {"__device__ int n = 1, f(int);\n" + body("return x;"), "line 1: a variable outlives the call"},
      {"int n;\n" + body("return x;"), "line 1: \"int\" begins nothing"},
      {"float f(float x) { return x; }\n" + body("return f(x);"), "line 1: \"float\" begins nothing"},
      {"} namespace other {\n" + body("return x;"), "line 1: \"}\" closes nothing"},
      {body("return (x];"), "line 2: \"]\" closes nothing"},
      {head + "return x;", "line 1: \"{\" is never closed"},
      {body("return x; /* no end"), "line 2: a comment has no end"},
      {body("float \xc3\xa9 = x; return x;"), "line 2: a character outside of ASCII"},
      {body("return x; // \xc3\xa9"), ""},
      {body(std::string("return x;\0", 10)), "line 2: a control character"},
      {body("return *(float*)0x1234;"), "line 2: \"*\" of a pointer"},
      {body("float y = x; float* p = &y; return p[0];"), "line 2: \"*\" of a pointer"},
      {"using T = float;\n" + body("T y = x;\nT *p = &y; return p[0];"), "line 4: \"&\" of a pointer"},
      {"using T = float;\n" + body("return ((T*)0)[1];"), "line 3: \"*\" of a pointer"},
      {"using T = float;\n" + body("auto p = static_cast<const T*>(0); return p[1];"), "\"*\" of a pointer"},
      {body("auto p = &args; return p->row;"), "line 2: \"&\" of a pointer"},
      {body("return (float&)args.row;"), "line 2: a cast to a reference"},
      {"struct B { float a[4]; };\n" + body("return ((const B&)args).a[3];"), "line 3: a cast to a reference"},
      {body("return static_cast<const float&>(x);"), "line 2: a cast to a reference"},
      {"__device__ float epilogue(float x, const Args&, Out&) { return x; }", ""},
      {body("const Args& same = args; return same.row;"), ""},
      {body("auto f = [&](float& y) { y *= 2; return y; }; float z = x; return f(z);"), ""},
      {body("return args.row & 1 && args.column & 2 ? x * -x : (x) * x * 2 * (x);"), ""},
      {body("auto&& y = x; auto& z = x; return y * z;"), ""},
      {body("float t[2] = {x, 2}; return t[0] * t[1] * 1.5f * x;"), ""},
      {"struct V { float a; __device__ V operator+(V v) const { return {a + v.a}; } };\n" +
           body("return (V{x} + V{1}).a;"),
       ""},
      {body("static const int two = 2; return x * two;"), "line 2: \"static\" has no place"},
      {"template <typename T> struct V { T a; };\n" + body("return V<float>{x}.a * x;"), ""},
      {"", "there is no function \"epilogue\""},
      {"__device__ float epilogues(float x) { return x; }", "there is no function \"epilogue\""},
      {body("return x;" + std::string(1 << 20, ' ')), "give 65536 at most"},
      {"constexpr float table[] = {1, 2};\nenum class E { a };\nusing T = float;\nstruct P { float a; };\n"
       "template <typename U> __device__ U g(U y) { return y; }\n" +
           body("P p{x}; return g<T>(p.a) * table[1];"),
       ""},
  };
  for (const Refusal& one : refusals) {
    CAPTURE(one.text.substr(0, 200));
    const std::string why = why_undefined(one.text);
    if (one.why.empty())
      CHECK(why == "");
    else
      CHECK_THAT(why, ContainsSubstring(one.why) && ContainsSubstring("the epilogue cannot be used: "));
  }
}

TEST_CASE("Operands that cannot be described are refused", "[custom_epilogue]") {
  const std::string code = body("return x;");
  const std::vector<Refusal> refusals = {
      {"// operand in residual matrix bf17\n", "line 1: \"bf17\" is no type"},
      {"// operand in a scalar\n// operand in residual cube bf16\n", "line 2: \"cube\" is no shape"},
      {"// operand inout residual matrix bf16\n", "line 1: an operand is in or out"},
      {"// operand in residual matrix bf16 twice\n", "line 1: an operand has no more words"},
      {"// operand in limit scalar f32\n", "line 1: a scalar has the accumulator's type"},
      {"// operand in Residual matrix bf16\n", "\"Residual\" is no name for an operand"},
      {"// operand in row matrix bf16\n", "\"row\" is no name for an operand"},
      {"// operand in float matrix bf16\n", "\"float\" is no name"},
      {"// operand in a__b matrix bf16\n", "\"a__b\" is no name"},
      {"// operand in a matrix bf16\n// operand out a matrix bf16\n", "two operands are called a"},
      {"// operand out sum along_n f32\n", "the output sum is along_n"},
  };
  for (const Refusal& one : refusals) {
    CAPTURE(one.text);
    CHECK_THAT(why_undefined(one.text + code), ContainsSubstring(one.why));
  }
  // Those of C++20, [lex.key] and [lex.digraph].
  for (const std::string word :
       {"alignas",     "alignof",  "and",        "and_eq",    "asm",       "auto",         "bitand",
        "bitor",       "bool",     "break",      "case",      "catch",     "char",         "char16_t",
        "char32_t",    "char8_t",  "class",      "co_await",  "co_return", "co_yield",     "compl",
        "concept",     "const",    "const_cast", "consteval", "constexpr", "constinit",    "continue",
        "decltype",    "default",  "delete",     "do",        "double",    "dynamic_cast", "else",
        "enum",        "explicit", "export",     "extern",    "false",     "float",        "for",
        "friend",      "goto",     "if",         "inline",    "int",       "long",         "mutable",
        "namespace",   "new",      "noexcept",   "not",       "not_eq",    "nullptr",      "operator",
        "or",          "or_eq",    "private",    "protected", "public",    "register",     "reinterpret_cast",
        "requires",    "return",   "short",      "signed",    "sizeof",    "static",       "static_assert",
        "static_cast", "struct",   "switch",     "template",  "this",      "thread_local", "throw",
        "true",        "try",      "typedef",    "typeid",    "typename",  "union",        "unsigned",
        "using",       "virtual",  "void",       "volatile",  "wchar_t",   "while",        "xor",
        "xor_eq"}) {
    CAPTURE(word);
    CHECK_THAT(why_undefined("// operand in " + word + " scalar\n" + code),
               ContainsSubstring("is no name for an operand"));
  }
  const Refusal late{"constexpr int a = 1;\n// operand in b scalar\n" + code, "line 2: operands come first"};
  CHECK_THAT(why_undefined(late.text), ContainsSubstring(late.why));
  const std::string operands = "//operand in a scalar\n //  operand\tin b matrix\tf16  \r\n";
  CHECK(parse_epilogue(operands + code).operands.size() == 2);
  // Lines are those of the whole text.
  CHECK_THAT(why_undefined(operands + body("static int n;")), ContainsSubstring("line 4: \"static\""));
  // The same text from other parts is refused, not taken for the other.
  const EpilogueFunction other{{}, "// operand in a scalar\n" + code};
  CHECK_THAT(refusal(ErrorCode::invalid_problem, [&] { define_epilogue(other); }),
             ContainsSubstring("line 1: operands come first"));
  std::string nine;
  for (int i = 0; i < 9; ++i) nine += "// operand in a" + std::to_string(i) + " scalar\n";
  CHECK_THAT(why_undefined(nine + code), ContainsSubstring("it has 9 operands: give 8 at most"));
  CHECK_THAT(refusal(ErrorCode::invalid_problem, [] { epilogue_of(4711); }),
             ContainsSubstring("none with the digest 4711"));
}

TEST_CASE("What a compiler does not take is named with the caller's line", "[custom_epilogue]") {
  const TemporaryDirectory cache;
  const std::vector<Refusal> refusals = {
      {body("return x + args.residual;"), "2"},
      {body("float y = 1;\n float z = x +;\n return z;"), "3"},
      {body("out.nothing = 1; return x;"), "2"},
      {body("args.row = 1; return x;"), "2"},
      {body("return nothing(x);"), "2"},
      {"// operand in a scalar\n// operand in b scalar\n" + body("return x + args.c;"), "4"},
      {"struct Args { int y; };\n" + body("return x;"), "1"},
      {"template <int N> __device__ float f(float y) { return f<N + 1>(y); }\n" + body("return f<0>(x);"), "1"},
      {"__device__ float epilogue(float x) { return x; }", "call"},
      {"__device__ float epilogue(float x, const Args& args, Out& out, int y) { return x; }", "call"},
      {"__device__ void epilogue(float x, const Args& args, Out& out) { }", "call"},
  };
  for (const Device device : {Device::emulator, Device::compile_only}) {
    Context context(options_of(device, cache.path()));
    for (const Refusal& one : refusals) {
      CAPTURE(one.text, int(device));
      const std::string mark = device == Device::emulator ? ":" : "(";
      const std::string place = one.why == "call" ? "call of the epilogue" + mark + "1" : "epilogue" + mark + one.why;
      const std::string why = why_uncompiled(context, one.text);
      CHECK_THAT(why, ContainsSubstring("the epilogue does not compile: " + place) && ContainsSubstring("error"));
      CHECK(why.find('\n') == std::string::npos);
    }
  }
}

TEST_CASE("What is more than arithmetic once it is compiled is refused by its instruction", "[custom_epilogue]") {
  const TemporaryDirectory cache;
  Context context(options_of(Device::compile_only, cache.path()));
  const std::vector<Refusal> refusals = {
      {"__device__ float f(float y, int n) { return n > 0 ? f(y, n - 1) * f(y + 1, n - 2) : y; }\n" +
           body("return f(x, int(x));"),
       "call.uni calls a function"},
      {body("float t[64]; for (int i = 0; i < 64; ++i) t[i] = i * x;\n return t[int(x) & 63];"), ".local"},
      {"constexpr float t[4] = {1, 2, 3, 4};\n" + body("return x * t[args.row % 4];"), "line 3: ld.global"},
      {body("return x + clock();"), "asks which thread it is, or what time"},
      {body("return sinf(x);"), "touches memory"},
      {"// operand in a scalar\n" + body("return x + args.a + clock();"), "line 3: "},
  };
  for (const Refusal& one : refusals) {
    CAPTURE(one.text);
    CHECK_THAT(why_uncompiled(context, one.text),
               ContainsSubstring("the epilogue does more than compute a value: ") && ContainsSubstring(one.why));
  }
  for (const std::string& text : {body("return x / (args.row + 1) + args.column % 3;"),
                                  body("auto f = [&](float y) { return x * y; }; return f(2);"),
                                  body("float y = x; for (int i = 0; i < 10; ++i) y = y * y + float(i); return y;"),
                                  body("float t[4]; for (int i = 0; i < 4; ++i) t[i] = i * x; return t[0] + t[3];"),
                                  body("return float(exp(double(x)));")}) {
    CAPTURE(text);
    CHECK(why_uncompiled(context, text) == "");
  }
}

TEST_CASE("Every function that an epilogue may call is there on both sides", "[custom_epilogue][emulator]") {
  const TemporaryDirectory cache;
  Context gpu(options_of(Device::compile_only, cache.path())), cpu(options_of(Device::emulator, cache.path()));
  std::string sum = "x";
  for (const char* const name : {"fabs", "sqrt", "rsqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2", "log1p",
                                 "tanh", "atan", "erf", "floor", "ceil", "rint", "trunc", "round"})
    sum += std::string(" + ") + name + "f(x) + float(" + name + "(double(x)))";
  for (const char* const name : {"fmax", "fmin", "fmod", "copysign"})
    sum += std::string(" + ") + name + "f(x, 2) + float(" + name + "(double(x), 2.0))";
  sum +=
      " + fmaf(x, x, 1) + float(fma(double(x), 2.0, 1.0)) + powf(x, 2) + min(x, 1.0f) + max(x, 1.0f) + abs(x) + "
      "float(min(args.row, 1) + max(args.row, 1) + abs(args.row)) + float(isnan(x)) + float(isinf(x)) + sigmoid(x) + "
      "float(log2_e)";
  sum +=
      " + float(x < INFINITY && x != NAN && x < FLT_MAX) + float(uint32_t(args.row) + int32_t(1) + uint64_t(1) + "
      "int64_t(1))";
  const std::string text = body("static constexpr float two = 2;\n  return two * (" + sum + ");");
  CHECK(why_uncompiled(gpu, text) == "");
  CHECK(why_uncompiled(cpu, text) == "");

  // NaN and infinity are values as any other.
  const Problem problem{
      .m = 2,
      .n = 3,
      .k = 1,
      .d = {f32},
      .epilogue = {.function = define_epilogue(parse_epilogue(
                       "// operand in nan scalar\n" + body("return args.column == 0   ? x * args.nan\n"
                                                           "     : args.column == 1 ? float(isnan(args.nan))\n"
                                                           "                        : fmaxf(args.nan, 3) / 0;")))}};
  const std::vector<std::uint16_t> ones(8, 0x3c00);
  std::vector<float> d(6);
  const EpilogueValue nan{.scalar = std::nan("")};
  cpu.gemm(problem, {.a = ones.data(), .b = ones.data(), .d = d.data(), .epilogue = &nan, .epilogue_count = 1});
  CHECK(std::isnan(d[0]));
  CHECK(d[1] == 1);
  CHECK(d[2] == std::numeric_limits<float>::infinity());
}

TEST_CASE("PTX is read to the end of the function that is asked for", "[custom_epilogue]") {
  const std::string ptx =
      "\n.visible .func (.param .b32 r) other(\n)\n{\n\tst.f32 [%rd1], %f1;\n\tret;\n}\n"
      ".visible .func  (.param .b32 r) asked(\n\t.param .b32 p\n)\n{\n\t.reg .f32 %f<2>;\n\t.loc\t2 7 3\n$L1:\n"
      "\t@%p1 bra \t$L1;\n\tld.param.f32 %f1, [p];\n\tHERE\n\tst.param.f32 [r+0], %f1;\n\tret;\n}\n\t.file\t1 "
      "\"/x/kernel\"\n"
      "\t.file\t2 \"/x/epilogue\"\n";
  const auto with = [&](const std::string& line) {
    std::string text = ptx;
    return text.replace(text.find("HERE"), 4, line);
  };
  CHECK(cuda::why_ptx_refused(with("add.rn.f32 %f1, %f1, %f1;"), "asked") == "");
  CHECK_THAT(cuda::why_ptx_refused(with("add.rn.f32 %f1, %f1, %f1;"), "other"),
             ContainsSubstring("st.f32 touches memory"));
  CHECK_THAT(cuda::why_ptx_refused(with("bar.sync 0;"), "asked"), ContainsSubstring("line 7: bar.sync waits for"));
  CHECK_THAT(cuda::why_ptx_refused(with("@%p2 atom.add.u32 %r1, [%rd1], 1;"), "asked"),
             ContainsSubstring("line 7: atom.add.u32"));
  CHECK_THAT(cuda::why_ptx_refused(with("mov.u32 %r1, %tid.x;"), "asked"), ContainsSubstring("asks which thread"));
  CHECK_THAT(cuda::why_ptx_refused(with("griddepcontrol.wait;"), "asked"),
             ContainsSubstring("is more than arithmetic"));
}

TEST_CASE("A compiler's log gives the first error of the caller's own text", "[custom_epilogue]") {
  CHECK(error_of_epilogue(
            "warning\nkernel(3): error: a\nepilogue(2): warning: b\nepilogue(4): error: c\nepilogue(5): error: d") ==
        "epilogue(4): error: c");
  CHECK(error_of_epilogue("call of the epilogue:1:2: error: e") == "call of the epilogue:1:2: error: e");
  CHECK(error_of_epilogue("kernel.cu(3): error: a") == "");
  CHECK(error_of_epilogue("") == "");
}
