// Epilogues of pairs of columns: their texts, what a problem and a configuration may be, what the compiler makes of
// them.
#include <string>

#include "catch.hpp"
#include "core/pairing.hpp"
#include "core/problem.hpp"
#include "errors.hpp"
#include "gated_cases.hpp"
#include "jit/source_generator.hpp"
#include "kernels/legality.hpp"
#include "nvrtc.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using namespace jitgemm::test::gated;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("A text says which columns are pairs, and its function takes two sums", "[gated_epilogue]") {
  const std::string two = "__device__ float epilogue(float gate, float up, const Args&, Out&) { return gate * up; }\n",
                    one = "__device__ float epilogue(float x, const Args&, Out&) { return x; }\n";
  const auto why = [](const std::string& text) {
    return refusal(ErrorCode::invalid_problem, [&] { define_epilogue(parse_epilogue(text)); });
  };
  for (const Pairing pairs : pairings) {
    const std::string text = line_of(pairs) + everything.text;
    const EpilogueFunction function = parse_epilogue(text);
    CHECK(function.pairs == pairs);
    CHECK(function.operands.size() == 6);
    CHECK(to_string(function) == text);
    Problem problem = problem_of(8, 12, 8);
    problem.epilogue.function = define_epilogue(function);
    CHECK(pairing_of(problem) == pairs);
    CHECK(columns_of_d(problem) == 6);
    CHECK(normalise(problem).d.ld == 6);
    CHECK(to_string(epilogue_of(problem.epilogue.function)) == text);
  }
  CHECK(define_epilogue(parse_epilogue("// pairs halves\n" + two)) !=
        define_epilogue(parse_epilogue("// pairs neighbours\n" + two)));
  CHECK(why("  //pairs  neighbours \r\n" + two) == "");
  CHECK_THAT(why(two),
             ContainsSubstring("line 1: the function takes a pair") && ContainsSubstring("\"// pairs halves\""));
  for (const char* misspelt : {"// pairs thirds\n", "// pairs halves and more\n", "// pairs\n", "// pairs none\n"})
    for (const std::string& function : {one, two})
      CHECK_THAT(why(misspelt + function), ContainsSubstring("line 1: no pairs are called that"));
  CHECK_THAT(why("// pairs of a kind\n" + two), ContainsSubstring("line 2: the function takes a pair"));
  CHECK(why("// pairs of a kind\n" + one) == "");
  CHECK_THAT(why("// pairs halves\n" + one), ContainsSubstring("line 2: the function is not one of a pair") &&
                                                 ContainsSubstring("float gate, float up"));
  CHECK_THAT(why("// pairs halves\nconstexpr float y = 1;\n"),
             ContainsSubstring("there is no function") && ContainsSubstring("float gate, float up"));
  CHECK_THAT(why("// pairs halves\n" + one + two), ContainsSubstring("line 3: a second function \"epilogue\""));
  CHECK_THAT(why(two + "\n" + one), ContainsSubstring("line 3: a second function \"epilogue\""));
  CHECK_THAT(why("// operand in s scalar\n// pairs halves\n" + two),
             ContainsSubstring("line 2: pairs come first, once, before operands"));
  CHECK_THAT(why("// pairs halves\n// pairs halves\n" + two), ContainsSubstring("line 2: pairs come first"));
  // Errors count the line of pairs.
  CHECK_THAT(why("// pairs halves\n// operand in s scalar\n" + two + "float y = 1;\n"),
             ContainsSubstring("line 4: \"float\" begins nothing"));
  // Commas of what is nested are no parameters'.
  CHECK(why("__device__ float epilogue(float x, const Args&, Out&) { return fmaxf(fminf(x, 1), 0); }") == "");
}

TEST_CASE("Pairs need an even N, and leave no place for C", "[gated_epilogue]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  Context context(on_emulator(cache.path(), random));
  const auto why = [&](const Problem& p) { return refusal(ErrorCode::invalid_problem, [&] { context.plan(p); }); };
  Problem problem = problem_of(8, 7, 8);
  problem.epilogue.function = define_epilogue(parse_epilogue("// pairs halves\n" + difference.text));
  CHECK_THAT(why(problem), ContainsSubstring("n = 7 is odd") && ContainsSubstring("give an even n"));
  problem.n = 8;
  CHECK(why(problem) == "");
  problem.beta = 1;
  CHECK_THAT(why(problem), ContainsSubstring("beta is given beside an epilogue of one's own"));
  problem.beta = 0;
  problem.d.ld = 3;
  CHECK_THAT(why(problem), ContainsSubstring("ldd = 3 is less than one row (column) of 4 elements"));
  problem.d.ld = 4;
  CHECK(context.plan(problem).explain().find("columns j and N / 2 + j are one of D, which is 8 x 4") !=
        std::string::npos);
}

TEST_CASE("Pairs halve what is stored, and are served by what their problem without them was tuned to",
          "[gated_epilogue][emulator]") {
  Problem plain = problem_of(4096, 4096, 64, f16), own = plain;
  own.epilogue.function =
      define_epilogue(parse_epilogue("// pairs halves\n// operand in a matrix f16\n// operand in c along_n f32\n"
                                     "__device__ float epilogue(float gate, float up, const Args& args, Out&) { return "
                                     "gate * up + args.a + args.c; }"));
  CHECK(minimum_bytes(normalise(plain)) - minimum_bytes(normalise(own)) == 4096.0 * 2048 * (4 - 2 - 2) - 2048 * 4);
  CHECK(epilogue_bytes_per_sum(own) == (2 + 2) / 2.0);

  const TemporaryDirectory cache;
  Random random(test_seed());
  plain = problem_of(40, 48, 64);
  ContextOptions options = on_emulator(cache.path(), random);
  options.tuning = Tuning::on;
  Context context(options);
  const KernelConfig best = context.tune(plain).plan.config;
  own = plain;
  own.epilogue.function = define_epilogue(parse_epilogue("// pairs neighbours\n" + difference.text));
  const auto tuned = context.counters().tuned;
  const NormalProblem without = without_epilogue_function(normalise(own));
  CHECK(equal(without, normalise(plain)));
  const DeviceInfo device = make_emulator_backend({})->device();
  CHECK((context.plan(own).config == best || !why_illegal(best, normalise(own), device).empty()));
  CHECK_THAT(context.plan(own).why, !ContainsSubstring("measure first"));
  CHECK(context.counters().tuned == tuned);
}

TEST_CASE("What a configuration may be of pairs follows from groups of 8 of them", "[gated_epilogue]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  ContextOptions options = on_emulator(cache.path(), random);
  options.device = Device::compile_only;
  options.architecture = "sm_90a";
  Context context(options);
  Problem problem = problem_of(4096, 8192, 4096, f16);
  problem.epilogue.function = define_epilogue(parse_epilogue("// pairs halves\n" + difference.text));
  const auto why = [&](const std::string& config) {
    return refusal(ErrorCode::invalid_config, [&] { context.plan(problem, parse_kernel_config(config)); });
  };
  CHECK(why("sm90 128x208x64 group_m=8 stages=3 warps=8 schedule=data_parallel") == "");
  CHECK_THAT(why("sm90 128x200x64 group_m=8 stages=3 warps=8 schedule=data_parallel"),
             ContainsSubstring("a multiple of 16 where its columns are pairs"));
  CHECK(why("sm90 128x200x64 group_m=8 stages=3 warps=8 swap_ab=true schedule=data_parallel") == "");
  CHECK(why("sm90 128x48x64 group_m=8 stages=3 warps=8 cluster=2x1x1 schedule=data_parallel") == "");
  CHECK_THAT(why("sm90 64x96x64 group_m=8 stages=8 warps=4 cluster=1x1x4 schedule=data_parallel"),
             ContainsSubstring("a multiple of 8 columns, of pairs 16"));
  problem.b.layout = Layout::row_major;
  CHECK_THAT(why("sm90 128x128x64 group_m=8 stages=3 warps=8 schedule=data_parallel"),
             ContainsSubstring("takes pairs of columns of a row-major B of 16-bit elements packed (pack=b)"));
  CHECK(why("sm90 128x128x64 group_m=8 stages=3 warps=8 schedule=data_parallel pack=b") == "");
  problem.grouping = Grouping::offsets, problem.batch = 2;
  CHECK_THAT(why("sm90 128x128x64 group_m=8 stages=3 warps=8 schedule=persistent grid=8"),
             ContainsSubstring("packs nothing of groups: give a column-major B"));
  problem.grouping = Grouping::none, problem.batch = 1;
  // The model chooses the Hopper loop for all of them, packed where it has to be.
  for (const Pairing pairs : pairings)
    for (const Layout layout : {Layout::column_major, Layout::row_major}) {
      problem.b.layout = layout;
      problem.epilogue.function = define_epilogue(parse_epilogue(line_of(pairs) + difference.text));
      const Plan plan = context.plan(problem);
      CAPTURE(to_string(plan.config));
      CHECK(plan.config.main_loop == MainLoop::sm90);
      CHECK(plan.config.pack_b == (layout == Layout::row_major));
    }
}

TEST_CASE("The widest tiles with pairs compile with NVRTC and spill nothing", "[gated_epilogue][nvrtc]") {
  const auto backend = nvrtc_for("sm_90a");
  if (!backend) SKIP(no_nvrtc);
  Problem problem = problem_of(4096, 8192, 4096, bf16);
  problem.a.type = problem.b.type = bf16;
  problem.epilogue.function = define_epilogue(parse_epilogue(
      "// pairs neighbours\n// operand in limit scalar\n// operand in alpha scalar\n// operand in bias along_n bf16\n"
      "__device__ float epilogue(float gate, float up, const Args& args, Out&) {\n"
      "  const float g = fminf(gate + args.bias, args.limit), u = fmaxf(fminf(up, args.limit), -args.limit);\n"
      "  return (u + 1) * g * sigmoid(-args.alpha * float(log2_e) * g);\n"
      "}\n"));
  for (const char* config :
       {"sm90 128x256x64 stages=4 warps=8 cluster=2x1x1", "sm90 256x160x64 stages=2 warps=8 schedule=stream_k",
        "sm90 256x160x64 stages=2 warps=8 swap_ab=true", "sm90 192x192x64 stages=3 warps=12 swap_ab=true",
        "sm90 128x160x64 stages=4 warps=8 consumers=ping_pong", "sm90 64x256x64 stages=4 warps=4 cluster=1x1x2"}) {
    const KernelConfig parsed = parse_kernel_config(config);
    for (const std::int64_t n : {8192, 8190}) {
      // Of a D that TMA does not store, swapped operands leave it from registers, too few for the widest.
      if (n % 16 != 0 && parsed.swap_ab && parsed.block_m == 256) continue;
      problem.n = n;
      check_spills_nothing(*backend, normalise(problem), parsed);
    }
  }
}
