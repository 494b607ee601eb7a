// Callbacks in C: a fallback, and one that is told how far a measurement is.
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "c_fixture.hpp"
#include "catch.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// What a callback is to do, and saw.
struct Told {
  int answer = 0, calls = 0;
  bool throws = false, serves = true;
  jitgemm_problem problem{};
  jitgemm_operands operands{};
  jitgemm_stream stream = nullptr;
  std::int32_t done = -1, total = -1;
};

int fall_back(void* user, const jitgemm_problem* problem, const jitgemm_operands* operands, jitgemm_stream stream,
              std::int32_t* served) {
  Told& told = *static_cast<Told*>(user);
  ++told.calls;
  told.problem = *problem, told.operands = *operands, told.stream = stream;
  CHECK(*served == 0);
  if (told.throws) throw std::runtime_error("a callback of C++");
  *served = told.serves;
  return told.answer;
}

int on_progress(void* user, std::int32_t done, std::int32_t total) {
  Told& told = *static_cast<Told*>(user);
  ++told.calls;
  told.done = done, told.total = total;
  if (told.throws) throw 7;  // no std::exception
  return told.answer;
}

int on_any_progress(void* user, const jitgemm_problem* problem, std::int32_t done, std::int32_t total) {
  static_cast<Told*>(user)->problem = *problem;
  return on_progress(user, done, total);
}

}  // namespace

TEST_CASE("A fallback in C serves, declines, stops the call or throws", "[c]") {
  CFixture f;
  Told told;
  f.options.compile_in_background = 1;
  f.options.fallback = fall_back;
  f.options.fallback_user = &told;
  const auto stream = reinterpret_cast<jitgemm_stream>(std::uintptr_t(0x40));
  const auto first_call = [&] {
    REQUIRE(f.begin() == JITGEMM_STATUS_SUCCESS);
    return f.gemm(nullptr, stream);
  };
  CHECK(first_call() == JITGEMM_STATUS_SUCCESS);
  CHECK(told.calls == 1);
  CHECK(told.stream == stream);
  CHECK(told.problem.size == sizeof told.problem);
  CHECK(told.problem.m == 64);
  CHECK(struct_bytes(told.operands) == struct_bytes(f.operands));
  CHECK(f.launches() == 0);

  told.serves = false;
  f.problem.epilogue.activation = JITGEMM_RELU;  // another kernel
  CHECK(first_call() == JITGEMM_STATUS_SUCCESS);
  CHECK(f.launches() == 1);

  told.answer = -4;
  f.problem.epilogue.activation = JITGEMM_SILU;
  CHECK(first_call() == JITGEMM_STATUS_INTERRUPTED);
  CHECK_THAT(jitgemm_last_error_message(), ContainsSubstring("the fallback callback returned -4"));
  told.throws = true;
  f.problem.epilogue.activation = JITGEMM_GELU_ERF;
  CHECK(first_call() == JITGEMM_STATUS_INTERRUPTED);
  CHECK_THAT(jitgemm_last_error_message(), ContainsSubstring("threw an exception: a callback of C++"));
}

TEST_CASE("A progress callback in C sees a measurement, and ends it", "[c]") {
  CFixture f;
  Told told, told_by_options;
  f.options.tuning = JITGEMM_TUNING_ON;
  f.options.tuning_budget_seconds = 60;
  f.options.progress = on_any_progress;
  f.options.progress_user = &told_by_options;
  REQUIRE(f.begin() == JITGEMM_STATUS_SUCCESS);

  f.problem.m = f.problem.n = 16;
  CHECK(f.gemm() == JITGEMM_STATUS_SUCCESS);  // the first call measures
  CHECK(told_by_options.calls > 1);
  CHECK(told_by_options.problem.m == 16);
  CHECK(told_by_options.done == told_by_options.total);

  for (Told* stopper : {&told, &told_by_options}) {
    for (const bool throws : {false, true}) {
      stopper->answer = throws ? 0 : 9;
      stopper->throws = throws;
      f.problem.k = 80 + (stopper == &told) * 16 + throws * 32;
      jitgemm_tune_report* report = nullptr;
      CHECK(jitgemm_tune(f.context, &f.problem, on_progress, &told, &report) == JITGEMM_STATUS_INTERRUPTED);
      CHECK_THAT(jitgemm_last_error_message(),
                 ContainsSubstring(throws ? "callback threw an exception" : "callback returned 9"));
      CHECK(report == nullptr);
      if (stopper == &told_by_options) CHECK(f.gemm() == JITGEMM_STATUS_INTERRUPTED);
      stopper->answer = 0;
      stopper->throws = false;
      CHECK(f.gemm() == JITGEMM_STATUS_SUCCESS);
    }
  }

  jitgemm_tune_report* report = nullptr;
  REQUIRE(jitgemm_tune(f.context, &f.problem, on_progress, &told, &report) == JITGEMM_STATUS_SUCCESS);
  CHECK(told.done == told.total);
  double seconds = 0;
  std::size_t count = 0;
  REQUIRE(jitgemm_tune_report_seconds(report, &seconds) == JITGEMM_STATUS_SUCCESS);
  CHECK(seconds > 0);
  REQUIRE(jitgemm_tune_report_count(report, &count) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(count > 1);
  int measured = 0;
  for (std::size_t i = 0; i < count; ++i) {
    auto config = made_by<jitgemm_config>(jitgemm_config_init);
    auto candidate = made_by<jitgemm_tuned_candidate>(jitgemm_tuned_candidate_init);
    REQUIRE(jitgemm_tune_report_candidate(report, i, &config, &candidate) == JITGEMM_STATUS_SUCCESS);
    const std::string skipped = line_of(
        [&](char* b, std::size_t c, std::size_t* n) { return jitgemm_tune_report_skipped(report, i, b, c, n); });
    CHECK(candidate.predicted_us > 0);
    CHECK(skipped.empty() == (candidate.measured_us > 0));
    measured += skipped.empty();
  }
  CHECK(measured > 1);
  CHECK(jitgemm_tune_report_candidate(report, count, nullptr, nullptr) == JITGEMM_STATUS_INVALID_ARGUMENT);
  char text[8];
  CHECK(jitgemm_tune_report_skipped(report, count, text, sizeof text, nullptr) == JITGEMM_STATUS_INVALID_ARGUMENT);
  jitgemm_plan* plan = nullptr;
  REQUIRE(jitgemm_tune_report_plan(report, &plan) == JITGEMM_STATUS_SUCCESS);
  jitgemm_tune_report_destroy(report);
  auto info = made_by<jitgemm_plan_info>(jitgemm_plan_info_init);
  REQUIRE(jitgemm_plan_get_info(plan, &info) == JITGEMM_STATUS_SUCCESS);
  CHECK(info.source == JITGEMM_CHOICE_MEASURED);
  CHECK(info.measured_us > 0);
  REQUIRE(info.runner_up_count > 0);
  auto runner_up = made_by<jitgemm_config>(jitgemm_config_init), winner = runner_up;
  double median_us = 0;
  REQUIRE(jitgemm_plan_get_runner_up(plan, 0, &runner_up, &median_us) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(jitgemm_plan_get_config(plan, &winner) == JITGEMM_STATUS_SUCCESS);
  CHECK(median_us > 0);
  CHECK(!(c::config_of(&runner_up) == c::config_of(&winner)));
  CHECK(jitgemm_plan_run(plan, &f.operands, nullptr) == JITGEMM_STATUS_SUCCESS);
  jitgemm_plan_destroy(plan);
}
