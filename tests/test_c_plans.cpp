// Plans by way of C.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "c_fixture.hpp"
#include "catch.hpp"
#include "context_fixtures.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

TEST_CASE("A plan made by way of C says what C++ says, and runs what C++ runs", "[c]") {
  const TemporaryDirectory cache;
  const Problem problem{.m = 48, .n = 40, .k = 72};
  Context context(emulator_options(cache));
  const CContext c_context(emulator_options(cache));
  HostOperands host(problem);
  for (const bool pins : {false, true}) {
    KernelConfig config = context.plan(problem).config;
    config.schedule = Schedule::persistent, config.grid = 2;
    const Plan expected = pins ? context.compile(problem, config) : context.compile(problem);
    const CPlan plan(c_context, problem, pins ? &config : nullptr);
    REQUIRE(jitgemm_plan_update(plan) == JITGEMM_STATUS_SUCCESS);
    const auto line = [&](auto get) {
      return line_of([&](char* b, std::size_t c, std::size_t* n) { return get(plan, b, c, n); });
    };
    REQUIRE(jitgemm_plan_compile(plan) == JITGEMM_STATUS_SUCCESS);
    CHECK(line(jitgemm_plan_explain) == expected.explain());
    CHECK(line(jitgemm_plan_json) == expected.json());
    CHECK(line(jitgemm_plan_why) == expected.why);
    CHECK(line(jitgemm_plan_rates) == expected.rates);
    CHECK(line(jitgemm_plan_device) == expected.device);
    auto c_problem = made_by<jitgemm_problem>(jitgemm_problem_init);
    auto c_config = made_by<jitgemm_config>(jitgemm_config_init);
    auto info = made_by<jitgemm_plan_info>(jitgemm_plan_info_init);
    auto time = made_by<jitgemm_predicted_time>(jitgemm_predicted_time_init);
    REQUIRE(jitgemm_plan_get_problem(plan, &c_problem) == JITGEMM_STATUS_SUCCESS);
    REQUIRE(jitgemm_plan_get_config(plan, &c_config) == JITGEMM_STATUS_SUCCESS);
    REQUIRE(jitgemm_plan_get_info(plan, &info) == JITGEMM_STATUS_SUCCESS);
    REQUIRE(jitgemm_plan_get_predicted_time(plan, &time) == JITGEMM_STATUS_SUCCESS);
    CHECK(to_string(c::problem_of(&c_problem)) == to_string(expected.problem));
    CHECK(c_problem.a.ld == 72);
    CHECK(c::config_of(&c_config) == expected.config);
    CHECK(info.source == int(expected.source));
    CHECK(info.registers == expected.registers);
    CHECK(info.threads == expected.threads);
    CHECK(time.us == expected.predicted.us);

    const std::string source = pins ? context.source(problem, config) : context.source(problem);
    CHECK(line(jitgemm_plan_source) == source);
    const std::string binary = pins ? context.binary(problem, config) : context.binary(problem);
    CHECK(text_of([&](char* b, std::size_t c, std::size_t* n) { return jitgemm_plan_binary(plan, b, c, n); }) ==
          binary);
    std::size_t kernels = 0;
    REQUIRE(jitgemm_plan_kernel_count(plan, &kernels) == JITGEMM_STATUS_SUCCESS);
    const std::vector<KernelText> sources = context.sources(problem, config),
                                  binaries = context.binaries(problem, config);
    REQUIRE(kernels == sources.size());
    for (std::size_t i = 0; pins && i < kernels; ++i) {
      const auto of = [&](auto get) {
        return line_of([&](char* b, std::size_t c, std::size_t* n) { return get(plan, i, b, c, n); });
      };
      CHECK(of(jitgemm_plan_kernel_name) == sources[i].name);
      CHECK(of(jitgemm_plan_kernel_entry) == sources[i].entry);
      CHECK(of(jitgemm_plan_kernel_source) == sources[i].text);
      CHECK(text_of([&](char* b, std::size_t c, std::size_t* n) {
              return jitgemm_plan_kernel_binary(plan, i, b, c, n);
            }) == binaries[i].text);
    }

    host.poison();
    const jitgemm_operands operands = c::to_c(host.operands);
    REQUIRE(jitgemm_plan_run(plan, &operands, nullptr) == JITGEMM_STATUS_SUCCESS);
    CHECK(host.violation(MainLoop(0)) == "");
  }
  CHECK(c_context.counters().launches == 2);
  CHECK(c_context.counters().compiles == 0);  // the C++ Context's are on disk
  CHECK(c_context.device().emulated == 1);
  CHECK(c_context.device().name == context.device().name);
}

TEST_CASE("A plan asks for its binaries once, whoever queries and fetches", "[c]") {
  CFixture f;
  REQUIRE(f.begin() == JITGEMM_STATUS_SUCCESS);
  static int compiles;
  compiles = 0;
  f.nvrtc.compile_program = [](nvrtcProgram program, int count, const char* const* options) {
    return ++compiles, FakeNvrtc::api().compile_program(program, count, options);
  };
  f.options.cache_dir = "/dev/null/nowhere";  // so that nothing but the plan can keep it
  REQUIRE(f.begin() == JITGEMM_STATUS_SUCCESS);
  jitgemm_plan* plan = nullptr;
  REQUIRE(jitgemm_plan_create(f.context, &f.problem, nullptr, &plan) == JITGEMM_STATUS_SUCCESS);
  CHECK(compiles == 0);
  std::size_t needed = 0;
  for (int i = 0; i < 3; ++i) REQUIRE(jitgemm_plan_binary(plan, nullptr, 0, &needed) == JITGEMM_STATUS_SUCCESS);
  CHECK(needed > 0);
  CHECK(compiles == 1);
  jitgemm_plan_destroy(plan);
}

TEST_CASE("A plan outlives its context, and both go without leaving anything", "[c]") {
  CFixture f;
  REQUIRE(f.begin() == JITGEMM_STATUS_SUCCESS);
  jitgemm_plan *plan = nullptr, *candidate = nullptr;
  jitgemm_candidates* candidates = nullptr;
  REQUIRE(jitgemm_plan_create(f.context, &f.problem, nullptr, &plan) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(jitgemm_candidates_create(f.context, &f.problem, &candidates) == JITGEMM_STATUS_SUCCESS);
  f.end();
  CHECK(jitgemm_plan_run(plan, &f.operands, nullptr) == JITGEMM_STATUS_SUCCESS);
  jitgemm_plan_destroy(plan);
  std::size_t count = 0;
  REQUIRE(jitgemm_candidates_count(candidates, &count) == JITGEMM_STATUS_SUCCESS);
  CHECK(count > 1);
  REQUIRE(jitgemm_candidates_plan(candidates, count - 1, &candidate) == JITGEMM_STATUS_SUCCESS);
  jitgemm_candidates_destroy(candidates);
  auto config = made_by<jitgemm_config>(jitgemm_config_init);
  REQUIRE(jitgemm_plan_get_config(candidate, &config) == JITGEMM_STATUS_SUCCESS);
  FakeGpu::log.clear();
  CHECK(jitgemm_plan_run(candidate, &f.operands, nullptr) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(jitgemm_plan_update(candidate) == JITGEMM_STATUS_SUCCESS);
  auto info = made_by<jitgemm_plan_info>(jitgemm_plan_info_init);
  auto same = made_by<jitgemm_config>(jitgemm_config_init);
  REQUIRE(jitgemm_plan_get_info(candidate, &info) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(jitgemm_plan_get_config(candidate, &same) == JITGEMM_STATUS_SUCCESS);
  CHECK(info.source == JITGEMM_CHOICE_PINNED);
  CHECK(c::config_of(&same) == c::config_of(&config));
  CHECK(FakeGpu::retained == 1);
  jitgemm_plan_destroy(candidate);
  CHECK(FakeGpu::retained == 0);
  CHECK(FakeGpu::alive.empty());
}

TEST_CASE("Threads share a plan while others update it", "[c]") {
  CFixture f;
  REQUIRE(f.begin() == JITGEMM_STATUS_SUCCESS);
  jitgemm_plan* plan = nullptr;
  REQUIRE(jitgemm_plan_create(f.context, &f.problem, nullptr, &plan) == JITGEMM_STATUS_SUCCESS);
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      std::vector<char> memory(1 << 20);
      FakeGpu::current = nullptr;
      for (int round = 0; round < 20; ++round) {
        std::size_t n = 0;
        jitgemm_status status = JITGEMM_STATUS_SUCCESS;
        if (i < 2) status = jitgemm_plan_run(plan, &f.operands, nullptr);
        if (i == 2) status = jitgemm_plan_update(plan);
        if (i == 3) status = jitgemm_plan_compile(plan);
        if (i == 4) status = jitgemm_plan_explain(plan, memory.data(), memory.size(), &n);
        if (i == 5) status = jitgemm_plan_binary(plan, memory.data(), memory.size(), &n);
        failures += status != JITGEMM_STATUS_SUCCESS;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(f.launches() == 40);
  jitgemm_plan_destroy(plan);
}
