// Epilogues of the caller's own that want what is not theirs: one clear error each, at the caller's line, by whatever
// sees it first; and what reaches beyond an operand by a fault of ours, which the emulator finds.
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "catch.hpp"
#include "custom_epilogue_cases.hpp"
#include "errors.hpp"
#include "jitgemm/jitgemm.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using namespace jitgemm::test::own_epilogues;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string operand = "// operand in residual matrix f16\n",
                  head = "__device__ float epilogue(float x, const Args& args, Out& out) {\n";

/// On the text's third line, behind one of an operand and the function's head.
std::string line_3(const std::string& code) { return operand + head + code + "\n}\n"; }
/// On the text's second line.
std::string line_2(const std::string& code) { return operand + code + "\n" + head + "  return x;\n}\n"; }

struct Hostile {
  std::string what, text, line, why;
};

/// What a call says of it on the emulator (a host's compiler), and where kernels are compiled by NVRTC.
std::string why_refused(const std::string& text, Device device) {
  const TemporaryDirectory cache;
  ContextOptions options = on_emulator(cache.path());
  options.device = device;
  options.architecture = "sm_90a";
  try {
    Problem problem = problem_of(64, 64, 64);
    problem.epilogue.function = define_epilogue(parse_epilogue(text));
    Context(options).compile(problem,
                             parse_kernel_config("sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=data_parallel"));
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

bool is_one_line(const std::string& error) { return error.find('\n') == std::string::npos && error.size() < 700; }

}  // namespace

TEST_CASE("A hostile epilogue that its words give away is refused before any compiler sees it",
          "[hostile][custom_epilogue]") {
  const std::vector<Hostile> all = {
      {"reads memory", line_3("  return *(const float*)0x1000;"), "line 3", "of a pointer"},
      {"writes memory", line_3("  ((float*)(long long)args.row)[0] = x; return x;"), "line 3", "of a pointer"},
      {"takes an address", line_3("  return (&args.residual)[1];"), "line 3", "of a pointer"},
      {"casts its reference", line_3("  return reinterpret_cast<const float(&)[9]>(args)[8];"), "line 3",
       "reinterpret_cast"},
      {"has a variable", line_2("__device__ float kept;"), "line 2", "a variable outlives the call"},
      {"has shared memory", line_3("  __shared__ float kept; return kept;"), "line 3", "__shared__"},
      {"waits at a barrier", line_3("  __syncthreads(); return x;"), "line 3", "__syncthreads"},
      {"waits for its warp", line_3("  __syncwarp(); return x;"), "line 3", "__syncwarp"},
      {"calls our barriers", line_3("  jitgemm::device::ptx::bar_sync(0, 128); return x;"), "line 3", "jitgemm"},
      {"calls ptx", line_3("  ptx::bar_sync(0, 128); return x;"), "line 3", "\"ptx\" has no place"},
      {"is PTX", line_3("  asm volatile(\"trap;\"); return x;"), "line 3", "\"asm\" has no place"},
      {"asks which thread it is", line_3("  return x + threadIdx.x;"), "line 3", "threadIdx"},
      {"includes a file", "#include </etc/passwd>\n" + head + "  return x;\n}\n", "line 1", "a preprocessor directive"},
      {"includes a file later", line_2("#include \"epilogue.cuh\""), "line 2", "a preprocessor directive"},
      {"includes by digraph", line_2("%:include <stdio.h>"), "line 2", "a preprocessor directive"},
      {"includes behind a joined line", line_2("/* \\\n*/ #include <stdio.h>"), "line 2", "a backslash"},
      {"defines a macro", line_2("#define float double"), "line 2", "a preprocessor directive"},
      {"closes our namespace", line_2("} namespace jitgemm {"), "line 2", "\"}\" closes nothing"},
      {"opens a namespace", line_2("namespace other {}"), "line 2", "\"namespace\" has no place"},
      {"has a name of ours", line_2("__device__ float jitgemm_call(float x) { return x; }"), "line 2", "jitgemm_call"},
      {"has an operand of two names", operand + operand + head + "  return x; }\n", "",
       "two operands are called residual"},
      {"describes an operand late", head + "  return x; }\n" + operand, "line 3", "operands come first"},
      {"has no function", operand + "constexpr float x = 1;\n", "", "there is no function \"epilogue\""},
      {"is a megabyte", line_3("  return x; //" + std::string(1 << 20, 'x')), "", "give 65536 at most"},
      {"has no end", operand + head + "  return x;", "line 2", "is never closed"},
      {"has a null character", line_3(std::string("  return x; \0", 13)), "line 3", "a control character"},
  };
  for (const Hostile& one : all) {
    INFO(one.what);
    const std::string error = why_refused(one.text, Device::compile_only);
    CHECK_THAT(error, ContainsSubstring("the epilogue cannot be used: ") && ContainsSubstring(one.line) &&
                          ContainsSubstring(one.why));
    CHECK(is_one_line(error));
  }
}

TEST_CASE("A hostile epilogue that a compiler gives away is refused at its line by both",
          "[hostile][custom_epilogue]") {
  const std::vector<Hostile> all = {
      {"reads what it did not declare", line_3("  return x + args.other;"), "3", "other"},
      {"writes what it did not declare", line_3("  out.other = x; return x;"), "3", "other"},
      {"writes what it reads", line_3("  args.residual = x; return x;"), "3", ""},
      {"reads what is the launch's", line_3("  return x + args.operands[1].ld;"), "3", "operands"},
      {"recurses in templates",
       line_2("template <int N> __device__ float f(float y) { return f<N + 1>(y); } constexpr "
              "int n = 0; __device__ float g(float y) { return f<0>(y); }"),
       "2", ""},
      {"recurses in types",
       line_2("template <int N> struct S { typename S<N + 1>::type y; using type = float; }; "
              "__device__ float g(float y) { return S<0>{y}.y; }"),
       "2", ""},
      {"recurses in constants", line_2("constexpr int f(int n) { return f(n + 1); } constexpr int forever = f(0);"),
       "2", ""},
      {"says Args anew", line_2("struct Args { float residual; };"), "2", "Args"},
      {"says Out anew", line_2("using Out = float;"), "2", "Out"},
      {"says a constant anew", line_2("constexpr float NAN = 0;"), "2", "NAN"},
      {"says another type anew", line_2("struct uint32_t { float y; };"), "2", "uint32_t"},
      {"takes one argument", operand + "__device__ float epilogue(float x) { return x; }\n", "call", ""},
      {"takes five", operand + "__device__ float epilogue(float x, const Args& a, Out& o, int, int) { return x; }\n",
       "call", ""},
      {"takes a value for the reference",
       operand + "__device__ float epilogue(float x, Args& a, Out& o) { return x; }\n", "call", ""},
      {"gives nothing", operand + "__device__ void epilogue(float x, const Args& args, Out& out) {}\n", "call", ""},
      {"is no C++", line_3("  return x x;"), "3", ""},
      {"gives nothing to some",
       operand + "__device__ float epilogue(float x, const Args& args, Out& out) { if (x > 0) return x; }\n", "2",
       "non-void function"},
  };
  for (const Device device : {Device::emulator, Device::compile_only})
    for (const Hostile& one : all) {
      const std::string mark = device == Device::emulator ? ":" : "(";
      const std::string place = one.line == "call" ? "call of the epilogue" + mark + "1" : "epilogue" + mark + one.line;
      INFO(one.what << (device == Device::emulator ? " on the emulator" : " by NVRTC"));
      const std::string error = why_refused(one.text, device);
      CHECK_THAT(error, ContainsSubstring("the epilogue does not compile: " + place) && ContainsSubstring("error") &&
                            ContainsSubstring(one.why));
      CHECK(is_one_line(error));
    }
}

TEST_CASE("A hostile epilogue that its instructions give away is refused where a GPU's kernel is compiled",
          "[hostile][custom_epilogue]") {
  const std::string recursion =
      operand + "__device__ float f(float y, int n) { return n > 0 ? f(y, n - 1) * f(y + 1, n - 2) : y; }\n" + head +
      "  return f(x, int(x));\n}\n";
  const std::vector<Hostile> all = {
      {"recurses", recursion, "line ", "calls a function"},
      {"keeps a table", line_3("  float t[64]; for (int i = 0; i < 64; ++i) t[i] = i * x; return t[int(x) & 63];"),
       "line 3", ".local"},
      {"reads a table", line_3("  constexpr float t[4] = {1, 2, 3, 4}; return t[args.row % 4];"), "line 3",
       "touches memory"},
      {"asks the time", line_3("  return x + clock();"), "line 3", "asks which thread it is, or what time"},
  };
  for (const Hostile& one : all) {
    INFO(one.what);
    const std::string error = why_refused(one.text, Device::compile_only);
    CHECK_THAT(error, ContainsSubstring("the epilogue does more than compute a value: ") &&
                          ContainsSubstring(one.line) && ContainsSubstring(one.why));
    CHECK(is_one_line(error));
  }
}

TEST_CASE("Names of the library's functions are the text's own if it wants them", "[hostile][custom_epilogue]") {
  const TemporaryDirectory cache;
  TestDevice device(on_emulator(cache.path()));
  Random random(test_seed());
  const Case own{
      "__device__ float sigmoid(float x) { return x + 1; }\n"
      "__device__ float gelu_erf(float x) { return sigmoid(x) * 2; }\n"
      "struct Arguments { float x; };\nenum Bias { none };\n"
      "__device__ float load(float x) { return Arguments{x}.x; }\n"
      "__device__ float epilogue(float x, const Args&, Out&) { return load(gelu_erf(x)) + none; }\n",
      [](double x, const std::vector<double>&, int, int, int) { return std::vector<double>{2 * (x + 1)}; }};
  CHECK(run(device, problem_of(20, 24, 64), own, nullptr, random) == "");
  CHECK(why_refused(own.text, Device::compile_only) == "");
}

TEST_CASE("NaN and infinity as constants come out as they are", "[hostile][custom_epilogue]") {
  const TemporaryDirectory cache;
  Context context(on_emulator(cache.path()));
  const std::string text =
      "constexpr float nan = NAN, big = INFINITY;\n"
      "__device__ float epilogue(float x, const Args& args, Out&) {\n"
      "  return args.column == 0 ? nan : args.column == 1 ? -big : args.column == 2 ? x * 0 * big : fmaxf(x, "
      "nan);\n}\n";
  Problem problem{.m = 1, .n = 4, .k = 1, .d = {f32}};
  problem.epilogue.function = define_epilogue(parse_epilogue(text));
  const std::vector<std::uint16_t> ones(8, 0x3c00);
  std::vector<float> d(4);
  context.gemm(problem, {.a = ones.data(), .b = ones.data(), .d = d.data()});
  CHECK(std::isnan(d[0]));
  CHECK((std::isinf(d[1]) && d[1] < 0));
  CHECK(std::isnan(d[2]));
  CHECK(d[3] == 1);
  CHECK(why_refused(text, Device::compile_only) == "");
}

TEST_CASE("The emulator finds a planted read of an operand that nobody declared",
          "[hostile][custom_epilogue][emulator]") {
  const TemporaryDirectory templates;
  std::filesystem::copy(JITGEMM_SOURCE_DIR "/templates", templates.path(), std::filesystem::copy_options::recursive);
  const std::filesystem::path file = templates.path() / "custom_epilogue.cuh";
  std::string text = file_text(file);
  const std::string right = ".operands[INDEX]";
  REQUIRE(text.find(right) != std::string::npos);
  write_file(file, text.replace(text.find(right), right.size(), ".operands[INDEX + 1]"));
  const ScopedEnvironment planted("JITGEMM_TEMPLATES_DIR", templates.path().c_str());
  for (const std::string shape : {"along_m", "along_n", "matrix"})
    for (const std::string config : {"sm80 64x32x32 group_m=8 stages=2 warps=2 schedule=data_parallel",
                                     "sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=data_parallel"}) {
      INFO(shape << " " << config);
      const TemporaryDirectory cache;
      TestDevice device(on_emulator(cache.path()));
      Random random(test_seed());
      const KernelConfig parsed = parse_kernel_config(config);
      const Case one{
          "// operand in given " + shape + " f16\n" + head + "  return x + args.given;\n}\n",
          [](double x, const std::vector<double>& in, int, int, int) { return std::vector<double>{x + in[0]}; }};
      CHECK_THAT(
          refusal(ErrorCode::emulator_fault, [&] { run(device, problem_of(64, 64, 64, f16), one, &parsed, random); }),
          ContainsSubstring("where an operand is that no call gives"));
    }
}
