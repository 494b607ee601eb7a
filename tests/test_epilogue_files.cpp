// Epilogues as files of the command's: those of tools/examples/epilogues, by both main loops, and the check that says
// whether they are right.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "command.hpp"
#include "context_internals.hpp"
#include "core/element.hpp"
#include "core/epilogue_function.hpp"
#include "core/problem.hpp"
#include "jitgemm/jitgemm.hpp"
#include "measure/trial.hpp"
#include "sandbox.hpp"
#include "util/atomic_file.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::filesystem::path folder = std::filesystem::path(JITGEMM_SOURCE_DIR) / "tools/examples/epilogues";

std::string text_of(const std::string& name) { return read_file(folder / (name + ".txt")).value(); }

ContextOptions on_emulator(const std::filesystem::path& cache) {
  ContextOptions options;
  options.device = Device::emulator;
  options.tuning = Tuning::off;
  options.cache_dir = cache.string();
  return options;
}

Problem problem_with(const std::string& text) {
  Problem problem{.m = 37, .n = 72, .k = 70, .a = {bf16}, .b = {bf16}, .d = {f32}};
  problem.epilogue.function = define_epilogue(parse_epilogue(text));
  return problem;
}

}  // namespace

TEST_CASE("jitgemm run finds each of the examples' epilogues right, by both main loops", "[cli][epilogue_files]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".txt") names.insert(entry.path().stem().string());
  CHECK(names.size() >= 12);
  for (const std::string& name : names) {
    const std::string with = " --epilogue " + (folder / (name + ".txt")).string();
    for (const std::string arch : {"sm_90a", "sm_80"}) {
      const Output output = jitgemm("run --device emulator --tuning off --arch " + arch +
                                    " -m 75 -n 68 -k 65 --type bf16 --layout nt --batch 2" + with);
      INFO(name << " on " << arch << ": " << output.out << output.err);
      CHECK(output.status == 0);
      CHECK_THAT(output.out, ContainsSubstring("right: all elements of D against float64") &&
                                 ContainsSubstring("jitgemm source --device emulator --problem") &&
                                 ContainsSubstring(with));
    }
  }
}

TEST_CASE("jitgemm run finds gated products right, of scaled rows and blocks, in groups too", "[cli][epilogue_files]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const std::string file = (folder / "silu_mul.txt").string();
  for (const std::string scales : {"", " --scaling vector", " --scaling-a block_1x128 --scaling-b block_128x128"})
    for (const std::string groups : {"", " --groups 4", " --batch 4 --grouping counts"}) {
      const std::string words =
          "run --device emulator --tuning off --arch sm_90a -m 67 -n 280 -k 384 --type e4m3 --layout nt" + groups +
          scales + " --epilogue " + file;
      const Output output = jitgemm(words);
      INFO(words << ": " << output.out << output.err);
      CHECK(output.status == 0);
      CHECK_THAT(output.out, ContainsSubstring("right: all elements of D against float64"));
    }
}

TEST_CASE("jitgemm bench has the product alone and the built-in beside an epilogue of one's own",
          "[cli][epilogue_files]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const TemporaryDirectory directory;
  const std::string shapes = (directory.path() / "shapes.txt").string(), csv = (directory.path() / "out.csv").string();
  write_file(shapes, "75 68 65\n16 40 200\n");
  const std::string bench = "bench --device emulator --type bf16 --model --shapes " + shapes + " --csv " + csv + " ";
  const auto epilogue = [](const std::string& name) { return "--epilogue " + (folder / (name + ".txt")).string(); };
  for (const auto& [name, built_in] :
       {std::pair("residual", "beta=1"), std::pair("bias_gelu", "bias=along_n activation=gelu_erf"),
        std::pair("silu_mul", "")}) {
    const std::string as = *built_in ? " --built-in \"" + std::string(built_in) + "\"" : "";
    const Output output = jitgemm(bench + epilogue(name) + as);
    INFO(output.out << output.err);
    REQUIRE(output.status == 0);
    const std::string record = read_file(csv).value();
    CHECK_THAT(record, ContainsSubstring("plain"));
    CHECK((record.find("built_in") != std::string::npos) == bool(*built_in));
    std::filesystem::remove(csv);
  }
  const Output other = jitgemm(bench + epilogue("residual") + " --built-in beta=0.5");
  INFO(other.out << other.err);
  CHECK_THAT(read_file(csv).value(), ContainsSubstring("built_in (") && ContainsSubstring(" here and "));
  std::filesystem::remove(csv);
  const Output alone = jitgemm(bench + "--built-in beta=1");
  CHECK(alone.status != 0);
  CHECK_THAT(alone.err, ContainsSubstring("what --epilogue says: add that"));
}

TEST_CASE("What is compared with an epilogue of one's own has its operands as C and bias",
          "[epilogue_files][emulator]") {
  const TemporaryDirectory cache;
  Context context(on_emulator(cache.path()));
  Problem own = problem_with(
      "// operand out before matrix f32\n// operand in scale matrix bf16\n// operand in residual matrix f32\n"
      "// operand in limit along_n bf16\n// operand in bias along_n f32\n"
      "__device__ float epilogue(float x, const Args& args, Out&) { return x + args.residual + args.bias; }\n");
  Problem built_in = own;
  built_in.epilogue.function = 0;
  built_in.epilogue.bias = Bias::along_n;
  built_in.beta = 1;
  cli::InputPools inputs(ContextInternals::backend(context), bf16);
  inputs.prepare(normalise(own), false, {normalise(built_in)});
  const Operands same = inputs.operands(0);
  CHECK(same.c == same.epilogue[2].in);
  CHECK(same.bias == same.epilogue[4].in);
  built_in.epilogue.bias = Bias::along_m;  // which none of the operands is
  inputs.prepare(normalise(own), false, {normalise(built_in)});
  const Operands other = inputs.operands(0);
  CHECK(other.c == other.epilogue[2].in);
  CHECK(other.bias != nullptr);
  for (std::size_t i = 0; i < other.epilogue_count; ++i) CHECK(other.bias != other.epilogue[i].in);
}

TEST_CASE("The check of an epilogue of one's own allows what other machines' functions leave of a difference",
          "[epilogue_files][emulator]") {
  const TemporaryDirectory cache;
  Context context(on_emulator(cache.path()));
  Backend& backend = ContextInternals::backend(context);
  const Problem problem = normalise(
      problem_with("__device__ float epilogue(float x, const Args&, Out&) {\n  const float h = 0.01f * x - 4.5f;\n"
                   "  return fmaf(0.5f * h, erff(h * 0.70710678f), 0.5f * h);\n}\n"));
  cli::InputPools inputs(backend, bf16);
  inputs.prepare(problem, false);
  const Operands operands = inputs.operands(0);
  context.gemm(problem, operands);
  auto* const d = static_cast<float*>(operands.d);
  const float kept = d[20 * 72 + 5];
  CHECK(std::abs(kept) < 1e-4f);
  for (const float units : {2.0f, -2.0f}) {  // in the last place of an erf near -1
    d[20 * 72 + 5] = kept + units * 2.25f * 0x1p-24f;
    CHECK(cli::check_against_reference(backend, problem, operands).passed());
    d[20 * 72 + 5] = kept + 32 * units * 2.25f * 0x1p-24f;
    CHECK_FALSE(cli::check_against_reference(backend, problem, operands).passed());
  }
}

TEST_CASE("The check of an epilogue of one's own allows a gradient that is all but 0 other machines' errors",
          "[epilogue_files][emulator]") {
  const TemporaryDirectory cache;
  Context context(on_emulator(cache.path()));
  Backend& backend = ContextInternals::backend(context);
  for (const std::string text : {"dgelu_erf(1e-5f * x - 0.7517916f)", "dsilu(1e-5f * x - 1.2784645f)"}) {
    const Problem problem =
        normalise(problem_with("__device__ float epilogue(float x, const Args&, Out&) { return " + text + "; }\n"));
    cli::InputPools inputs(backend, bf16);
    inputs.prepare(problem, false);
    const Operands operands = inputs.operands(0);
    context.gemm(problem, operands);
    auto* const d = static_cast<float*>(operands.d);
    const float kept = d[20 * 72 + 5];
    CAPTURE(text, kept);
    CHECK(std::abs(kept) < 1e-4f);
    for (const float off : {0x1p-22f, -0x1p-22f}) {
      d[20 * 72 + 5] = kept + off;
      CHECK(cli::check_against_reference(backend, problem, operands).passed());
      d[20 * 72 + 5] = kept + 32 * off;
      CHECK_FALSE(cli::check_against_reference(backend, problem, operands).passed());
    }
  }
}

TEST_CASE("The check of an epilogue of one's own tells infinity from NaN where sums overflow",
          "[epilogue_files][emulator]") {
  const TemporaryDirectory cache;
  Context context(on_emulator(cache.path()));
  Backend& backend = ContextInternals::backend(context);
  Problem problem = problem_with("__device__ float epilogue(float x, const Args&, Out&) { return x; }\n");
  problem.alpha = 1e38;
  problem = normalise(problem);
  cli::InputPools inputs(backend, bf16);
  inputs.prepare(problem, false);
  const Operands operands = inputs.operands(0);
  context.gemm(problem, operands);
  auto* const d = static_cast<float*>(operands.d);
  REQUIRE(cli::check_against_reference(backend, problem, operands).passed());
  float* const infinite = std::find_if(d, d + problem.m * problem.n, [](float x) { return std::isinf(x); });
  REQUIRE(infinite != d + problem.m * problem.n);
  for (const float wrong : {std::nanf(""), -*infinite, 1.0f}) {
    const float kept = std::exchange(*infinite, wrong);
    CHECK_FALSE(cli::check_against_reference(backend, problem, operands).passed());
    *infinite = kept;
  }
}

TEST_CASE("jitgemm run says how much of D is NaN as the epilogue has it", "[cli][epilogue_files]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "root.txt").string();
  const auto check_of = [&](const std::string& result) {
    write_file(file, "__device__ float epilogue(float x, const Args&, Out&) { return " + result + "; }\n");
    const Output output = jitgemm("run --device emulator --tuning off -m 20 -n 24 -k 40 --type f16 --epilogue " + file);
    CHECK(output.status == 0);
    return output.out;
  };
  CHECK_THAT(check_of("x > 0 ? x : NAN"), ContainsSubstring("right: all elements of D against float64, ") &&
                                              ContainsSubstring(" of them NaN in both"));
  CHECK_THAT(check_of("x > 0 ? x : 0"), ContainsSubstring("right: all") && !ContainsSubstring("NaN"));
}

TEST_CASE("The check of an epilogue of one's own finds each wrong element", "[epilogue_files][emulator]") {
  const TemporaryDirectory cache;
  Context context(on_emulator(cache.path()));
  Backend& backend = ContextInternals::backend(context);
  for (const std::string name : {"gelu_aux", "geglu_saved", "scale_rows_columns", "dropout"}) {
    INFO(name);
    const Problem problem = normalise(problem_with(text_of(name)));
    cli::InputPools inputs(backend, bf16);
    inputs.prepare(problem, false);
    const Operands operands = inputs.operands(0);
    cli::poison(backend, problem, operands);
    CHECK_FALSE(cli::check_against_reference(backend, problem, operands).passed());
    context.gemm(problem, operands);
    const cli::Check right = cli::check_against_reference(backend, problem, operands);
    CHECK(right.whole);
    REQUIRE(right.passed());

    // A thousandth is more than rounding makes of a D of f32.
    auto* const d = static_cast<float*>(operands.d);
    const std::int64_t width = name == "geglu_saved" ? 36 : 72, at = 20 * width + 5;
    const float kept = d[at];
    d[at] = kept + 1e-3f * (1 + std::abs(kept));
    const cli::Check wrong = cli::check_against_reference(backend, problem, operands);
    CHECK_FALSE(wrong.passed());
    CHECK(cli::element_name(problem, wrong.worst) == "D(20, 5)");
    d[at] = kept;
    const std::vector<EpilogueOperand>& own = epilogue_function(problem).operands;
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (!own[i].output) continue;
      const double before = load_element(operands.epilogue[i].out, at, own[i].type);
      store_element(before + 0.1 * (1 + std::abs(before)), operands.epilogue[i].out, at, own[i].type);
      const cli::Check other = cli::check_against_reference(backend, problem, operands);
      CHECK_FALSE(other.passed());
      CHECK(cli::element_name(problem, other.worst) == own[i].name + "(20, 5)");
      store_element(before, operands.epilogue[i].out, at, own[i].type);
    }
  }
}

TEST_CASE("The check of an epilogue of one's own knows a sum from its neighbour", "[epilogue_files][emulator]") {
  const TemporaryDirectory cache;
  Context context(on_emulator(cache.path()));
  Backend& backend = ContextInternals::backend(context);
  // What is computed, and what it is held to: another operand, another column, the gate for the other.
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"// operand in rows along_m f32\n// operand in columns along_n f32\n"
       "__device__ float epilogue(float x, const Args& args, Out&) { return x * args.rows; }\n",
       "// operand in rows along_m f32\n// operand in columns along_n f32\n"
       "__device__ float epilogue(float x, const Args& args, Out&) { return x * args.columns; }\n"},
      {"__device__ float epilogue(float x, const Args& args, Out&) { return x + args.row; }\n",
       "__device__ float epilogue(float x, const Args& args, Out&) { return x + args.column; }\n"},
      {"// pairs halves\n__device__ float epilogue(float gate, float up, const Args&, Out&) { return gate - up; }\n",
       "// pairs halves\n__device__ float epilogue(float gate, float up, const Args&, Out&) { return up - gate; }\n"},
      {"// pairs halves\n__device__ float epilogue(float gate, float up, const Args&, Out&) { return gate - up; }\n",
       "// pairs neighbours\n__device__ float epilogue(float gate, float up, const Args&, Out&) { return gate - up; "
       "}\n"},
  };
  for (const auto& [computed, held_to] : pairs) {
    INFO(computed);
    const Problem problem = normalise(problem_with(computed));
    cli::InputPools inputs(backend, bf16);
    inputs.prepare(problem, false);
    context.gemm(problem, inputs.operands(0));
    CHECK(cli::check_against_reference(backend, problem, inputs.operands(0)).passed());
    CHECK_FALSE(cli::check_against_reference(backend, normalise(problem_with(held_to)), inputs.operands(0)).passed());
  }
}
