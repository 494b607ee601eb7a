// Epilogues of the caller's own by way of the command and of C.
#include <filesystem>
#include <string>
#include <vector>

#include "c_context.hpp"
#include "catch.hpp"
#include "command.hpp"
#include "jitgemm/jitgemm.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string text =
    "// operand in residual matrix f32\n// operand in step scalar\n// operand out before matrix f32\n"
    "__device__ float epilogue(float x, const Args& args, Out& out) {\n"
    "  out.before = x;\n"
    "  return x * args.step + args.residual;\n"
    "}\n";

/// For jitgemm_context_destroy().
jitgemm_context* on_emulator(const TemporaryDirectory& cache) {
  const std::string path = cache.path().string();
  auto options = made_by<jitgemm_options>(jitgemm_options_init);
  options.device = JITGEMM_DEVICE_EMULATOR;
  options.tuning = JITGEMM_TUNING_OFF;
  options.cache_dir = path.c_str();
  jitgemm_context* context = nullptr;
  REQUIRE(jitgemm_context_create(&options, &context) == JITGEMM_STATUS_SUCCESS);
  return context;
}

}  // namespace

TEST_CASE("jitgemm explain, source and warm take an epilogue of one's own", "[cli][custom_epilogue]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "residual.txt").string();
  write_file(file, text);
  const std::string small = " -m 40 -n 48 -k 64 --d f32 --device emulator --epilogue " + file;

  const Output source = jitgemm("source" + small);
  INFO(source.err);
  REQUIRE(source.status == 0);
  CHECK_THAT(source.out,
             ContainsSubstring("return x * args.step + args.residual;") && ContainsSubstring("#line 4 \"epilogue\""));
  const Output ptx =
      jitgemm("source --format ptx --arch sm_90a --device compile_only -m 64 -n 64 -k 64 --d f32 --epilogue " + file);
  INFO(ptx.err);
  CHECK(ptx.status == 0);

  const Output explained = jitgemm("explain" + small);
  INFO(explained.err);
  REQUIRE(explained.status == 0);
  CHECK_THAT(explained.out, ContainsSubstring("epilogue=" + std::to_string(define_epilogue(parse_epilogue(text)))));

  // explain has compiled it; another text is another kernel.
  const Output cached = jitgemm("warm" + small);
  INFO(cached.err);
  REQUIRE(cached.status == 0);
  CHECK_THAT(cached.out, ContainsSubstring("0 kernels compiled, 1 from the cache"));
  write_file(file, text + "constexpr int other = 1;\n");
  CHECK_THAT(jitgemm("warm" + small).out, ContainsSubstring("1 kernel compiled, 0 from the cache"));
}

TEST_CASE("jitgemm explain, source and warm take an epilogue of pairs, and say how wide D is",
          "[cli][gated_epilogue]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "gated.txt").string();
  write_file(file,
             "// pairs neighbours\n"
             "__device__ float epilogue(float gate, float up, const Args&, Out&) { return gate * up; }\n");
  const std::string small = " -m 40 -n 48 -k 64 --d f32 --device emulator --epilogue " + file;
  const Output explained = jitgemm("explain" + small);
  INFO(explained.err);
  REQUIRE(explained.status == 0);
  CHECK_THAT(explained.out, ContainsSubstring("columns 2j and 2j + 1 are one of D, which is 40 x 24"));
  CHECK_THAT(jitgemm("source" + small).out,
             ContainsSubstring("PAIRING = Pairing::neighbours;") && ContainsSubstring("#line 2 \"epilogue\""));
  CHECK_THAT(jitgemm("warm" + small).out, ContainsSubstring("0 kernels compiled, 1 from the cache"));
  const Output odd = jitgemm("explain -m 40 -n 47 -k 64 --device emulator --epilogue " + file);
  CHECK(odd.status != 0);
  CHECK_THAT(odd.err, ContainsSubstring("n = 47 is odd, and the epilogue takes pairs of columns"));
}

TEST_CASE("An epilogue of pairs goes through C", "[c][gated_epilogue][emulator]") {
  std::uint64_t function = 0;
  REQUIRE(
      jitgemm_epilogue_define("// pairs halves\n__device__ float epilogue(float gate, float up, const Args&, Out&) {"
                              " return gate - 2 * up; }",
                              &function) == JITGEMM_STATUS_SUCCESS);
  const TemporaryDirectory cache;
  jitgemm_context* const context = on_emulator(cache);
  auto problem = made_by<jitgemm_problem>(jitgemm_problem_init);
  problem.m = 1, problem.n = 4, problem.k = 1;
  problem.d.type = JITGEMM_F32;
  problem.epilogue.function = function;
  const std::vector<std::uint16_t> a{0x3c00}, b{0x3c00, 0x4000, 0x4400, 0x4800};  // 1; 1, 2, 4, 8
  std::vector<float> d(3, 7);
  auto operands = made_by<jitgemm_operands>(jitgemm_operands_init);
  operands.a = a.data(), operands.b = b.data(), operands.d = d.data();
  REQUIRE(jitgemm_gemm(context, &problem, nullptr, &operands, nullptr) == JITGEMM_STATUS_SUCCESS);
  CHECK(d == std::vector<float>{1 - 8, 2 - 16, 7});
  jitgemm_context_destroy(context);
}

TEST_CASE("What the command cannot do with an epilogue, or its file, is one error", "[cli][custom_epilogue]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "e.txt").string(),
                    small = " -m 40 -n 48 -k 64 --device emulator --epilogue ";
  write_file(file, text);
  const auto fails = [&](const std::string& arguments, const std::string& why) {
    const Output output = jitgemm(arguments);
    INFO(arguments << ": " << output.err);
    CHECK(output.status != 0);
    CHECK_THAT(output.err, ContainsSubstring(why));
  };
  fails("tune" + small + file, "an epilogue of your own is not tuned");
  fails("explain" + small + file + ".none", "cannot read the epilogue in");
  fails("explain" + small + directory.path().string(), "cannot read the epilogue in");
  fails("explain --problem 'm=8 n=8 k=8 epilogue=77' --device emulator", "no epilogue with the digest 77");
  fails("explain --beta 1 -m 8 -n 8 -k 8 --device emulator --d f32 --epilogue " + file,
        "beta is given beside an epilogue");
  write_file(file, text + std::string(90 << 10, ' '));
  fails("explain" + small + file, "is too large for an epilogue");
  write_file(file, "// operand in x cube f16\n" + text);
  fails("source" + small + file, "line 1: \"cube\" is no shape");
}

TEST_CASE("An epilogue of one's own goes through C as through C++", "[c][custom_epilogue][emulator]") {
  std::uint64_t function = 0;
  REQUIRE(jitgemm_epilogue_define(text.c_str(), &function) == JITGEMM_STATUS_SUCCESS);
  CHECK(function == define_epilogue(parse_epilogue(text)));
  std::size_t needed = 0;
  REQUIRE(jitgemm_epilogue_text(function, nullptr, 0, &needed) == JITGEMM_STATUS_SUCCESS);
  CHECK(needed == text.size() + 1);
  std::string back(needed, 'x');
  CHECK(jitgemm_epilogue_text(function, back.data(), needed - 1, nullptr) == JITGEMM_STATUS_BUFFER_TOO_SMALL);
  REQUIRE(jitgemm_epilogue_text(function, back.data(), needed, nullptr) == JITGEMM_STATUS_SUCCESS);
  CHECK(back == text + '\0');

  std::uint64_t kept = 7;
  CHECK(jitgemm_epilogue_define(nullptr, &kept) == JITGEMM_STATUS_INVALID_ARGUMENT);
  CHECK(jitgemm_epilogue_define(text.c_str(), nullptr) == JITGEMM_STATUS_INVALID_ARGUMENT);
  CHECK(jitgemm_epilogue_define("int x;", &kept) == JITGEMM_STATUS_INVALID_PROBLEM);
  CHECK_THAT(jitgemm_last_error_message(), ContainsSubstring("line 1: \"int\""));
  CHECK(kept == 7);
  CHECK(jitgemm_epilogue_text(77, nullptr, 0, &needed) == JITGEMM_STATUS_INVALID_PROBLEM);

  const TemporaryDirectory cache;
  jitgemm_context* const context = on_emulator(cache);
  auto problem = made_by<jitgemm_problem>(jitgemm_problem_init);
  problem.m = 3, problem.n = 5, problem.k = 2;
  problem.d.type = JITGEMM_F32;
  problem.epilogue.function = function;
  const std::vector<std::uint16_t> a(6, 0x3c00), b(10, 0x4000);  // 1 and 2
  std::vector<float> residual(15), d(15), before(15);
  for (std::size_t i = 0; i < residual.size(); ++i) residual[i] = float(i);
  jitgemm_epilogue_value values[3] = {};
  values[0].in = residual.data();
  values[1].scalar = 10;
  values[2].out = before.data();
  auto operands = made_by<jitgemm_operands>(jitgemm_operands_init);
  operands.a = a.data(), operands.b = b.data(), operands.d = d.data();
  operands.epilogue = values;
  operands.epilogue_count = 3;
  REQUIRE(jitgemm_gemm(context, &problem, nullptr, &operands, nullptr) == JITGEMM_STATUS_SUCCESS);
  for (std::size_t i = 0; i < d.size(); ++i) {
    CHECK(before[i] == 4);
    CHECK(d[i] == 40 + float(i));
  }
  const std::int32_t end = 3;
  values[0].stride = 15;
  operands.group_rows = &end;
  problem.grouping = JITGEMM_GROUPING_OFFSETS;
  CHECK(jitgemm_gemm(context, &problem, nullptr, &operands, nullptr) == JITGEMM_STATUS_INVALID_OPERAND);
  CHECK_THAT(jitgemm_last_error_message(), ContainsSubstring("stride_residual = 15 leads from matrix to matrix"));
  problem.grouping = JITGEMM_GROUPING_NONE, operands.group_rows = nullptr;
  operands.epilogue = nullptr;
  CHECK(jitgemm_gemm(context, &problem, nullptr, &operands, nullptr) == JITGEMM_STATUS_INVALID_OPERAND);
  CHECK_THAT(jitgemm_last_error_message(), ContainsSubstring("Operands::epilogue is null"));
  // Of a program that was built before there were epilogues.
  operands.size = 88;
  CHECK(jitgemm_gemm(context, &problem, nullptr, &operands, nullptr) == JITGEMM_STATUS_INVALID_OPERAND);
  CHECK_THAT(jitgemm_last_error_message(), ContainsSubstring("has 3 operands and 0 values"));
  jitgemm_context_destroy(context);
}
