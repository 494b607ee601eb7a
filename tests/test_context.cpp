// What a Context says of itself, of its plans and of its errors.
#include <utility>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "context_fixtures.hpp"
#include "context_internals.hpp"
#include "errors.hpp"
#include "sample_configs.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("What measures a Context works on that Context's own device", "[context]") {
  const TemporaryDirectory cache;
  ContextOptions options = emulator_options(cache);
  options.emulator_sm_count = 7;
  Context context(options);
  Backend& backend = ContextInternals::backend(context);
  CHECK(backend.device().sm_count == 7);
  const Context moved(std::move(context));
  CHECK(&ContextInternals::backend(moved) == &backend);
  // NOLINTNEXTLINE(bugprone-use-after-move)
  CHECK_THAT(error_of([&] { ContextInternals::backend(context); }).what(), ContainsSubstring("moved from"));
}

TEST_CASE("A Context that was moved from says so", "[context]") {
  const TemporaryDirectory cache;
  Context first(compile_only(cache));
  Context second(std::move(first));
  // NOLINTNEXTLINE(bugprone-use-after-move)
  CHECK_THAT(error_of([&] { first.plan({.m = 1, .n = 1, .k = 1}); }).what(), ContainsSubstring("moved from"));
  CHECK_THROWS_AS(first.gemm({}, {}), Error);
  CHECK_THROWS_AS(first.device(), Error);
  CHECK_THROWS_AS(first.counters(), Error);
  CHECK(second.device().architecture == "sm_80");
  first = std::move(second);
  CHECK(first.device().architecture == "sm_80");
}

TEST_CASE("Without a device, a Context plans, shows and explains, and refuses to run", "[context]") {
  const TemporaryDirectory cache;
  Context context(compile_only(cache, "sm_90a"));
  const Problem problem{.m = 1536, .n = 1792, .k = 6016};
  const KernelConfig config = with_schedule({.block_k = 32}, Schedule::stream_k_two_tile, 1, 132);
  const Plan plan = context.plan(problem, config);
  CHECK(plan.source == PlanSource::pinned);
  CHECK(plan.tiles_m == 12);
  CHECK(plan.tiles_n == 14);
  CHECK(plan.stream_k_tiles == 36);
  CHECK(plan.data_parallel_tiles == 132);
  CHECK(plan.ctas == 132);
  CHECK(plan.k_blocks_per_tile == 188);
  CHECK(plan.stream_k_blocks == 36 * 188);
  CHECK(plan.workspace_bytes == 2 * 132 * 128 * 128 * 4);
  CHECK(plan.workspace_bytes == context.workspace_size(problem, config));
  CHECK(plan.registers == -1);

  const std::string text = plan.explain();
  for (const char* word :
       {"1536, 1792, 6016", "BLK_M, BLK_N, BLK_K = 128 x 128 x 32", "12 x 14",
        "36 stream-K + 132 data-parallel = 168 in total", "188 per tile, 6768 stream-K in total", "not compiled yet",
        "stream_k_two_tile", "group_m 8", "pinned", "floor", "predicted", "not measured"}) {
    CHECK_THAT(text, ContainsSubstring(word));
  }
  CHECK_THAT(text, ContainsSubstring("CTAs            132"));
  CHECK_THAT(context.source(problem, config), ContainsSubstring("BLOCK_M = 128"));

  Plan measured = plan;
  measured.measured_us = 20;
  measured.runners_up = {{plan.config, 19}, {plan.config, 21}};
  CHECK_THAT(measured.explain(),
             ContainsSubstring("19.00 us  " + to_string(plan.config) + ", ahead by less than the noise\n") &&
                 ContainsSubstring("21.00 us  " + to_string(plan.config) + "\n"));

  const Plan chosen = context.plan(problem);
  CHECK(chosen.source == PlanSource::model);
  CHECK(context.workspace_size(problem) == chosen.workspace_bytes);
  const std::vector<Plan> all = context.candidates(problem);
  REQUIRE(all.size() > 50);
  CHECK(all.front().config == chosen.config);
  for (std::size_t i = 1; i < all.size(); ++i) CHECK(all[i - 1].predicted.us <= all[i].predicted.us);

  HostOperands host({.m = 64, .n = 64, .k = 64});
  const Error error = error_of([&] { context.gemm({.m = 64, .n = 64, .k = 64}, host.operands); });
  CHECK(error.code() == ErrorCode::no_device);
  CHECK_THAT(error.problem(), ContainsSubstring("m=64 n=64 k=64"));
}

TEST_CASE("Errors carry the problem and the configuration", "[context]") {
  const TemporaryDirectory cache;
  Context context(emulator_options(cache));
  Error error = error_of([&] { context.plan({.m = -1, .n = 5, .k = 5}); });
  CHECK(error.code() == ErrorCode::invalid_problem);
  CHECK_THAT(error.problem(), ContainsSubstring("m=-1 n=5 k=5"));

  const Problem problem{.m = 64, .n = 64, .k = 64};
  KernelConfig illegal = sm80_config;
  illegal.block_m = 63;
  HostOperands host(problem);
  error = error_of([&] { context.gemm(problem, host.operands, nullptr, illegal); });
  CHECK(error.code() == ErrorCode::invalid_config);
  CHECK_THAT(error.config(), ContainsSubstring("63"));
  CHECK_THAT(error.problem(), ContainsSubstring("m=64"));
  CHECK(error_of([&] { context.compile(problem, illegal); }).code() == ErrorCode::invalid_config);
  CHECK(error_of([&] { context.workspace_size(problem, illegal); }).code() == ErrorCode::invalid_config);

  host.operands.b = nullptr;
  CHECK(error_of([&] { context.gemm(problem, host.operands); }).code() == ErrorCode::invalid_operand);
  CHECK(error_of([&] { context.tune({.m = 4, .n = 4, .k = 0}); }).code() == ErrorCode::invalid_problem);
  CHECK(context.counters().launches == 0);
}

TEST_CASE("compile and warm fill the cache, and plan then knows the registers", "[context]") {
  const TemporaryDirectory cache;
  std::optional<Context> context;
  context.emplace(compile_only(cache));
  const Problem problem{.m = 300, .n = 200, .k = 100};
  try {
    context->warm(problem);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_compiler) throw;
    SKIP(error.what());
  }
  CHECK(context->counters().compiles == 1);
  const Plan plan = context->plan(problem);
  CHECK(plan.registers > 0);
  CHECK(plan.spill_bytes == 0);
  CHECK_THAT(plan.explain(), ContainsSubstring("no spills"));
  CHECK(context->compile(problem).registers == plan.registers);
  CHECK(context->binary(problem).substr(1, 3) == "ELF");
  CHECK(context->counters().compiles == 1);
}
