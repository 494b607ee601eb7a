// What is wrong with arguments that only C can give: structs without their _init, reserved words, NULL, and indices of
// nothing.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "c/values.hpp"
#include "c_structs.hpp"
#include "catch.hpp"
#include "core/problem.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

template <typename Struct>
void check_sizes(const char* name, jitgemm_status (*init)(Struct*, std::size_t),
                 const std::function<jitgemm_status(Struct*)>& use) {
  INFO(name);
  Struct one;
  REQUIRE(init(&one, sizeof one) == JITGEMM_STATUS_SUCCESS);
  CHECK(one.size == sizeof one);
  for (const std::size_t size : {std::size_t(0), std::size_t(1), std::size_t(8), sizeof one - 4, sizeof one - 1,
                                 sizeof one + 1, sizeof one + 5000, SIZE_MAX, std::size_t(0x7ffc12345678)}) {
    constexpr auto versions = c::Versioned<Struct>::sizes;
    if (std::find(versions.begin(), versions.end(), size) != versions.end()) continue;  // an older program's
    INFO(size);
    one.size = size;
    const Struct before = one;
    const std::string message = invalid_argument(use(&one));
    CHECK_THAT(message, ContainsSubstring(name) && ContainsSubstring(std::string(name) + "_init()") &&
                            ContainsSubstring(std::to_string(size)));
    CHECK_THAT(invalid_argument(init(&one, size)), ContainsSubstring(std::string(name) + "_init()"));
    CHECK(struct_bytes(one) == struct_bytes(before));
  }
  CHECK_THAT(invalid_argument(init(nullptr, sizeof one)), ContainsSubstring(std::string(name) + " is NULL"));
  CHECK_THAT(invalid_argument(use(nullptr)), ContainsSubstring("is NULL"));
}

ContextOptions without_device(const TemporaryDirectory& cache) {
  return {.device = Device::compile_only, .architecture = "sm_80", .cache_dir = cache.path().string()};
}

}  // namespace

TEST_CASE("A struct without its _init is one error that names it", "[c][hostile]") {
  const TemporaryDirectory cache;
  const CContext context(without_device(cache));
  const CPlan plan(context, {.m = 64, .n = 64, .k = 64}, nullptr);
  std::size_t n = 0;
  check_sizes<jitgemm_problem>("jitgemm_problem", jitgemm_problem_init_sized,
                               [&](auto* problem) { return jitgemm_problem_to_string(problem, nullptr, 0, &n); });
  check_sizes<jitgemm_problem>("jitgemm_problem", jitgemm_problem_init_sized,
                               [](auto* problem) { return jitgemm_problem_parse("m=1 n=1 k=1", problem); });
  check_sizes<jitgemm_problem>("jitgemm_problem", jitgemm_problem_init_sized,
                               [&](auto* problem) { return jitgemm_plan_get_problem(plan, problem); });
  check_sizes<jitgemm_config>("jitgemm_config", jitgemm_config_init_sized,
                              [&](auto* config) { return jitgemm_config_to_string(config, nullptr, 0, &n); });
  check_sizes<jitgemm_config>("jitgemm_config", jitgemm_config_init_sized,
                              [&](auto* config) { return jitgemm_plan_get_config(plan, config); });
  check_sizes<jitgemm_operands>("jitgemm_operands", jitgemm_operands_init_sized,
                                [&](auto* operands) { return jitgemm_plan_run(plan, operands, nullptr); });
  check_sizes<jitgemm_options>("jitgemm_options", jitgemm_options_init_sized, [](auto* options) {
    jitgemm_context* made = nullptr;
    // No options are the defaults.
    return options ? jitgemm_context_create(options, &made) : jitgemm_options_init(nullptr);
  });
  check_sizes<jitgemm_device>("jitgemm_device", jitgemm_device_init_sized,
                              [&](auto* device) { return jitgemm_get_device(context, device); });
  check_sizes<jitgemm_counters>("jitgemm_counters", jitgemm_counters_init_sized,
                                [&](auto* counters) { return jitgemm_get_counters(context, counters); });
  check_sizes<jitgemm_predicted_time>("jitgemm_predicted_time", jitgemm_predicted_time_init_sized,
                                      [&](auto* time) { return jitgemm_plan_get_predicted_time(plan, time); });
  check_sizes<jitgemm_plan_info>("jitgemm_plan_info", jitgemm_plan_info_init_sized,
                                 [&](auto* info) { return jitgemm_plan_get_info(plan, info); });
  check_sizes<jitgemm_tuned_candidate>(
      "jitgemm_tuned_candidate", jitgemm_tuned_candidate_init_sized, [](auto* candidate) {
        return candidate ? jitgemm_tune_report_candidate(nullptr, 0, nullptr, candidate)
                         : jitgemm_tuned_candidate_init(nullptr);
      });
}

TEST_CASE("A reserved word that is not 0 is refused, whose it is", "[c][hostile]") {
  const auto refuses = [](const char* message, auto change) {
    jitgemm_problem problem = new_problem();
    change(problem);
    std::size_t needed = 0;
    CHECK_THAT(invalid_argument(jitgemm_problem_to_string(&problem, nullptr, 0, &needed)), ContainsSubstring(message));
    CHECK(needed == 0);
  };
  refuses("jitgemm_problem.a has a reserved word", [](jitgemm_problem& p) { p.a.reserved[2] = -1; });
  refuses("jitgemm_problem.d has a reserved word", [](jitgemm_problem& p) { p.d.reserved_word = 1; });
  refuses("jitgemm_problem.b has a reserved word", [](jitgemm_problem& p) { p.b.reserved[0] = 1; });
  refuses("jitgemm_problem.c has a reserved word", [](jitgemm_problem& p) { p.c.reserved[0] = 1; });
  refuses("jitgemm_problem.d has a reserved word", [](jitgemm_problem& p) { p.d.reserved[1] = 1; });
  refuses("jitgemm_problem.epilogue has a reserved word", [](jitgemm_problem& p) { p.epilogue.reserved[6] = 1; });
  for (const bool nested : {false, true}) {
    auto options = made_by<jitgemm_options>(jitgemm_options_init);
    options.device = JITGEMM_DEVICE_EMULATOR;
    if (nested)
      options.constraints.reserved[2] = 1;
    else
      options.reserved_word = 1;
    jitgemm_context* context = nullptr;
    CHECK_THAT(invalid_argument(jitgemm_context_create(&options, &context)),
               ContainsSubstring(nested ? "jitgemm_options.constraints has" : "jitgemm_options has"));
    CHECK(context == nullptr);
  }
}

TEST_CASE("NULL for anything that must be there is one error that names it, and writes nothing", "[c][hostile]") {
  const TemporaryDirectory cache;
  const CContext context(without_device(cache));
  jitgemm_problem problem = new_problem();
  problem.m = problem.n = problem.k = 64;
  const jitgemm_operands operands = made_by<jitgemm_operands>(jitgemm_operands_init);
  const CPlan plan(context, c::problem_of(&problem), nullptr);
  jitgemm_candidates* list = nullptr;
  REQUIRE(jitgemm_candidates_create(context, &problem, &list) == JITGEMM_STATUS_SUCCESS);
  jitgemm_config config = new_config();
  auto device = made_by<jitgemm_device>(jitgemm_device_init);
  auto counters = made_by<jitgemm_counters>(jitgemm_counters_init);
  auto info = made_by<jitgemm_plan_info>(jitgemm_plan_info_init);
  auto time = made_by<jitgemm_predicted_time>(jitgemm_predicted_time_init);
  const auto untouched = reinterpret_cast<jitgemm_plan*>(std::uintptr_t(1));
  jitgemm_plan* made = untouched;
  jitgemm_candidates* made_list = nullptr;
  jitgemm_tune_report* report = nullptr;
  std::size_t n = 99;
  double seconds = 99;
  char buffer[8];
  int count = 0;
  const auto is_refused = [&](const char* word, jitgemm_status status) {
    INFO("case " << count++);
    CHECK_THAT(invalid_argument(status), ContainsSubstring(std::string(word) + " is NULL"));
  };
  jitgemm_context* const no_context = nullptr;
  is_refused("text", jitgemm_problem_parse(nullptr, &problem));
  is_refused("name", jitgemm_problem_set_field(&problem, nullptr, "1"));
  is_refused("value", jitgemm_problem_set_field(&problem, "m", nullptr));
  is_refused("jitgemm_problem", jitgemm_problem_set_field(nullptr, "m", "1"));
  is_refused("text", jitgemm_config_parse(nullptr, &config));
  is_refused("count", jitgemm_cuda_device_count(nullptr));
  is_refused("context", jitgemm_context_create(nullptr, nullptr));
  is_refused("context", jitgemm_gemm(no_context, &problem, nullptr, &operands, nullptr));
  is_refused("jitgemm_problem", jitgemm_gemm(context, nullptr, nullptr, &operands, nullptr));
  is_refused("jitgemm_operands", jitgemm_gemm(context, &problem, nullptr, nullptr, nullptr));
  is_refused("context", jitgemm_warm(no_context, &problem));
  is_refused("jitgemm_problem", jitgemm_warm(context, nullptr));
  is_refused("context", jitgemm_workspace_size(no_context, &problem, nullptr, &n));
  is_refused("jitgemm_problem", jitgemm_workspace_size(context, nullptr, nullptr, &n));
  is_refused("bytes", jitgemm_workspace_size(context, &problem, nullptr, nullptr));
  is_refused("context", jitgemm_trim(no_context));
  is_refused("context", jitgemm_get_device(no_context, &device));
  is_refused("context", jitgemm_get_counters(no_context, &counters));
  is_refused("context", jitgemm_plan_create(no_context, &problem, nullptr, &made));
  is_refused("jitgemm_problem", jitgemm_plan_create(context, nullptr, nullptr, &made));
  is_refused("plan", jitgemm_plan_create(context, &problem, nullptr, nullptr));
  is_refused("plan", jitgemm_plan_run(nullptr, &operands, nullptr));
  is_refused("plan", jitgemm_plan_update(nullptr));
  is_refused("plan", jitgemm_plan_compile(nullptr));
  is_refused("plan", jitgemm_plan_get_problem(nullptr, &problem));
  is_refused("plan", jitgemm_plan_get_config(nullptr, &config));
  is_refused("plan", jitgemm_plan_get_predicted_time(nullptr, &time));
  is_refused("plan", jitgemm_plan_get_info(nullptr, &info));
  is_refused("plan", jitgemm_plan_get_runner_up(nullptr, 0, &config, &seconds));
  for (const auto get : {jitgemm_plan_explain, jitgemm_plan_json, jitgemm_plan_why, jitgemm_plan_rates,
                         jitgemm_plan_device, jitgemm_plan_source}) {
    is_refused("plan", get(nullptr, buffer, sizeof buffer, &n));
    CHECK_THAT(invalid_argument(get(plan, nullptr, 1, &n)), ContainsSubstring("buffer is NULL"));
  }
  is_refused("plan", jitgemm_plan_binary(nullptr, buffer, sizeof buffer, &n));
  is_refused("plan", jitgemm_plan_kernel_count(nullptr, &n));
  is_refused("count", jitgemm_plan_kernel_count(plan, nullptr));
  for (const auto get : {jitgemm_plan_kernel_name, jitgemm_plan_kernel_entry, jitgemm_plan_kernel_source})
    is_refused("plan", get(nullptr, 0, buffer, sizeof buffer, &n));
  is_refused("plan", jitgemm_plan_kernel_binary(nullptr, 0, buffer, sizeof buffer, &n));
  is_refused("context", jitgemm_candidates_create(no_context, &problem, &made_list));
  is_refused("jitgemm_problem", jitgemm_candidates_create(context, nullptr, &made_list));
  is_refused("candidates", jitgemm_candidates_create(context, &problem, nullptr));
  is_refused("candidates", jitgemm_candidates_count(nullptr, &n));
  is_refused("count", jitgemm_candidates_count(list, nullptr));
  is_refused("candidates", jitgemm_candidates_plan(nullptr, 0, &made));
  is_refused("plan", jitgemm_candidates_plan(list, 0, nullptr));
  is_refused("context", jitgemm_tune(no_context, &problem, nullptr, nullptr, &report));
  is_refused("jitgemm_problem", jitgemm_tune(context, nullptr, nullptr, nullptr, &report));
  is_refused("report", jitgemm_tune_report_seconds(nullptr, &seconds));
  is_refused("report", jitgemm_tune_report_plan(nullptr, &made));
  is_refused("report", jitgemm_tune_report_count(nullptr, &n));
  is_refused("report", jitgemm_tune_report_candidate(nullptr, 0, nullptr, nullptr));
  is_refused("report", jitgemm_tune_report_skipped(nullptr, 0, buffer, sizeof buffer, &n));
  CHECK(n == 99);
  CHECK(seconds == 99);
  CHECK(made == untouched);
  CHECK(made_list == nullptr);
  CHECK(report == nullptr);
  CHECK(text(problem) == "m=64 n=64 k=64 a=f16 b=f16 d=f16");
  jitgemm_context_destroy(nullptr);
  jitgemm_plan_destroy(nullptr);
  jitgemm_candidates_destroy(nullptr);
  jitgemm_tune_report_destroy(nullptr);

  std::size_t there = 0;
  REQUIRE(jitgemm_candidates_count(list, &there) == JITGEMM_STATUS_SUCCESS);
  for (const std::size_t index : {there, there + 1, SIZE_MAX}) {
    CHECK_THAT(invalid_argument(jitgemm_candidates_plan(list, index, &made)), ContainsSubstring("candidates"));
    CHECK_THAT(invalid_argument(jitgemm_plan_get_runner_up(plan, index, &config, &seconds)),
               ContainsSubstring("runners-up"));
    CHECK_THAT(invalid_argument(jitgemm_plan_kernel_source(plan, index, buffer, sizeof buffer, &n)),
               ContainsSubstring("kernels"));
    CHECK_THAT(invalid_argument(jitgemm_plan_kernel_binary(plan, index, buffer, sizeof buffer, &n)),
               ContainsSubstring("kernels"));
  }
  CHECK(made == untouched);
  jitgemm_candidates_destroy(list);
}
