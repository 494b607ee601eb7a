// When a Context measures, and what it does with the result.
#include <algorithm>
#include <atomic>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "context_fixtures.hpp"
#include "errors.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("The emulator tunes inside gemm only when asked to, once a problem, and stores the choice", "[context]") {
  const TemporaryDirectory cache;
  const Problem problem{.m = 64, .n = 64, .k = 64};
  HostOperands host(problem);
  {
    const ScopedEnvironment unset("JITGEMM_TUNING", nullptr);
    Context context(emulator_options(cache, std::nullopt));
    context.gemm(problem, host.operands);
    CHECK(context.counters().tuned == 0);
  }
  KernelConfig tuned;
  {
    const ScopedEnvironment asked("JITGEMM_TUNING", "on");
    ContextOptions options = emulator_options(cache, std::nullopt);
    options.tuning_budget_seconds = 0.2;
    Context context(options);
    CHECK_THAT(context.plan(problem).why, ContainsSubstring("will measure"));
    context.gemm(problem, host.operands);
    context.gemm(problem, host.operands);
    CHECK(context.counters().tuned == 1);
    const Plan plan = context.plan(problem);
    CHECK(plan.source == PlanSource::measured);
    CHECK(plan.measured_us > 0);
    CHECK(plan.registers >= 0);
    tuned = plan.config;
  }
  CHECK(std::filesystem::exists(cache.path() / "tuning.jsonl"));
  Context later(emulator_options(cache, Tuning::cached));
  CHECK(later.plan(problem).source == PlanSource::exact);
  CHECK(later.plan(problem).config == tuned);
  CHECK_THAT(later.plan({.m = 80, .n = 64, .k = 64}).why, ContainsSubstring("nearest is m=64 n=64 k=64"));
  CHECK(later.plan({.m = 2000, .n = 64, .k = 64}).source == PlanSource::model);
  host.poison();
  later.gemm(problem, host.operands);
  CHECK(host.violation(tuned.main_loop) == "");
  CHECK(later.counters().tuned == 0);
  CHECK(Context(emulator_options(cache, Tuning::off)).plan(problem).source == PlanSource::model);

  ContextOptions spent = emulator_options(cache, Tuning::on);
  spent.tuning_total_budget_seconds = 0;
  Context broke(spent);
  const Problem another{.m = 500, .n = 40, .k = 32};
  HostOperands other(another);
  broke.gemm(another, other.operands);
  CHECK(broke.counters().tuned == 0);
  CHECK_THAT(broke.plan(another).why, ContainsSubstring("budget is spent"));
}

TEST_CASE("tune() measures whatever the mode, reports, and its winner is what gemm then runs", "[context]") {
  const TemporaryDirectory cache;
  ContextOptions options = emulator_options(cache, Tuning::cached);
  options.tuning_budget_seconds = 0.2;
  options.bucket_m = true;
  Context context(options);
  const Problem problem{.m = 48, .n = 64, .k = 64};
  int last = 0;
  const TuneReport report = context.tune(problem, [&](int done, int total) {
    CHECK(done <= total);
    last = done;
  });
  CHECK(last > 0);
  CHECK(report.plan.source == PlanSource::measured);
  CHECK_FALSE(report.candidates.empty());
  CHECK(context.plan(problem).config == report.plan.config);
  // The bucket is m = 64.
  CHECK(context.plan({.m = 63, .n = 64, .k = 64}).source == PlanSource::exact);
  CHECK_THAT(context.plan({.m = 63, .n = 64, .k = 64}).why, ContainsSubstring("m=64"));
  CHECK(context.plan({.m = 65, .n = 64, .k = 64}).source != PlanSource::exact);
}

TEST_CASE("What a progress callback of tune() calls does not wait for the measurement that it is in", "[context]") {
  const TemporaryDirectory cache;
  Context context({.device = Device::emulator,
                   .architecture = "sm_80",
                   .tuning = Tuning::on,
                   .tuning_budget_seconds = 0.01,
                   .cache_dir = cache.path().string()});
  const Problem tuned{.m = 32, .n = 32, .k = 32}, other{.m = 16, .n = 32, .k = 32};
  bool asked = false;
  std::optional<Error> refused;
  context.tune(tuned, [&](int, int) {
    if (std::exchange(asked, true)) return;
    context.workspace_size(other);
    refused = error_if_any([&] { context.tune(other); });
  });
  CHECK(asked);
  REQUIRE(refused);
  CHECK(refused->code() == ErrorCode::invalid_option);
  CHECK(context.tune(other).plan.source == PlanSource::measured);  // and now it may
}

TEST_CASE("tune() can be ended while it waits for another thread's measurement", "[context][threads]") {
  const TemporaryDirectory cache;
  ContextOptions options = emulator_options(cache, Tuning::on);
  options.architecture = "sm_80";
  options.tuning_budget_seconds = 0.01;
  Context context(options);
  std::atomic<bool> measures = false, goes_on = false;
  std::thread other([&] {
    context.tune({.m = 32, .n = 32, .k = 32}, [&](int, int) {
      measures = true;
      while (!goes_on) std::this_thread::yield();
    });
  });
  while (!measures) std::this_thread::yield();
  const Problem waits{.m = 16, .n = 32, .k = 32};
  CHECK_THROWS_WITH(context.tune(waits,
                                 [&](int done, int) {
                                   CHECK(done == 0);
                                   CHECK_THROWS_WITH(context.tune(waits), ContainsSubstring("progress callback"));
                                   throw std::runtime_error("enough");
                                 }),
                    "enough");
  goes_on = true;
  other.join();
  CHECK(context.counters().tuned == 1);
  CHECK(context.tune(waits).plan.source == PlanSource::measured);
}

TEST_CASE("A gemm() that tunes can be ended while it waits for another thread's measurement", "[context][threads]") {
  const TemporaryDirectory cache;
  ContextOptions options = emulator_options(cache, Tuning::on);
  options.architecture = "sm_80";
  options.tuning_budget_seconds = 0.01;
  std::atomic<bool> measures = false, goes_on = false;
  const std::thread::id waits = std::this_thread::get_id();
  options.progress = [&](const Problem& problem, int done, int) {
    if (std::this_thread::get_id() == waits && !goes_on) {
      CHECK(problem.m == 16);
      CHECK(done == 0);
      throw std::runtime_error("enough");
    }
    measures = true;
    while (!goes_on) std::this_thread::yield();
  };
  Context context(options);
  std::thread other([&] {
    const Problem problem{.m = 32, .n = 32, .k = 32};
    HostOperands host(problem);
    context.gemm(problem, host.operands);
  });
  while (!measures) std::this_thread::yield();
  const Problem problem{.m = 16, .n = 32, .k = 32};
  HostOperands host(problem);
  host.poison();
  CHECK_THROWS_WITH(context.gemm(problem, host.operands), "enough");
  goes_on = true;
  other.join();
  CHECK(context.counters().tuned == 1);
  context.gemm(problem, host.operands);
  CHECK(host.violation(MainLoop::sm80) == "");
  CHECK(context.counters().tuned == 2);
}

TEST_CASE("A first call that measures says how far it is, of which problem", "[context]") {
  const TemporaryDirectory cache;
  ContextOptions options = emulator_options(cache, Tuning::on);
  options.architecture = "sm_80";
  options.tuning_budget_seconds = 0.01;
  std::vector<std::pair<int, int>> calls;
  const Problem problem{.m = 32, .n = 48, .k = 64, .alpha = 2};
  options.progress = [&](const Problem& measured, int done, int total) {
    CHECK(measured.m == 32);
    CHECK(measured.n == 48);
    CHECK(measured.alpha == 2);
    calls.emplace_back(done, total);
  };
  Context context(options);
  HostOperands host(problem);
  context.gemm(problem, host.operands);
  REQUIRE(!calls.empty());
  CHECK(calls.back().first == calls.back().second);
  CHECK(calls.back().second > 1);
  for (std::size_t i = 1; i < calls.size(); ++i) CHECK(calls[i - 1].first <= calls[i].first);

  const std::size_t once = calls.size();
  context.gemm(problem, host.operands);
  CHECK(calls.size() == once);
  int own = 0;
  context.tune(problem, [&](int, int) { ++own; });
  CHECK(own > 0);
  CHECK(calls.size() == once + std::size_t(own));
}

TEST_CASE("What a progress callback throws ends the measurement, and the next call measures again", "[context]") {
  struct Stop {};
  const TemporaryDirectory cache;
  ContextOptions options = emulator_options(cache, Tuning::on);
  options.architecture = "sm_80";
  options.tuning_budget_seconds = 0.01;
  enum class Way { none, exception, other } way = Way::none;
  bool at_the_end = false, thrown = false;
  options.progress = [&](const Problem&, int done, int total) {
    if (way == Way::none || (at_the_end && done < total)) return;
    CHECK_FALSE(std::exchange(thrown, true));
    if (way == Way::exception) throw std::runtime_error("enough");
    throw Stop();
  };
  Context context(options);
  const Problem problem{.m = 32, .n = 32, .k = 32};
  HostOperands host(problem);
  const auto stopped = [&](const auto& action) {
    thrown = false;
    if (way == Way::exception)
      CHECK_THROWS_WITH(action(), "enough");
    else
      CHECK_THROWS_AS(action(), Stop);
    CHECK(thrown);
    CHECK(context.counters().tuned == 0);
    CHECK_THAT(context.plan(problem).why, ContainsSubstring("will measure"));
  };
  for (const Way how : {Way::exception, Way::other}) {
    for (const bool late : {false, true}) {
      way = how;
      at_the_end = late;
      stopped([&] { context.gemm(problem, host.operands); });
      stopped([&] { context.tune(problem); });
      stopped([&] { context.workspace_size(problem); });
    }
  }
  way = Way::none;
  host.poison();
  context.gemm(problem, host.operands);
  CHECK(context.counters().tuned == 1);
  const Plan plan = context.plan(problem);
  CHECK(plan.source == PlanSource::measured);
  CHECK(host.violation(plan.config.main_loop) == "");
}

TEST_CASE("A measurement that is stopped leaves the problem to the threads that wait for it", "[context][threads]") {
  const TemporaryDirectory cache;
  ContextOptions options = emulator_options(cache, Tuning::on);
  options.architecture = "sm_80";
  options.tuning_budget_seconds = 0.01;
  constexpr int threads = 4, stops = 2;
  std::atomic<int> begun = 0, measuring = 0, stopped = 0;
  std::atomic<bool> overlapped = false;
  options.progress = [&](const Problem&, int, int) {
    if (++measuring > 1) overlapped = true;
    while (begun < threads) std::this_thread::yield();
    --measuring;
    if (stopped < stops) {
      ++stopped;
      throw std::runtime_error("enough");
    }
  };
  Context context(options);
  const Problem problem{.m = 32, .n = 32, .k = 32};
  std::atomic<int> refused = 0;
  std::vector<std::string> violations(threads, "stopped");
  {
    std::vector<std::jthread> all;
    for (std::size_t i = 0; i < threads; ++i) {
      all.emplace_back([&, i] {
        HostOperands host(problem, i);
        ++begun;
        try {
          context.gemm(problem, host.operands);
          violations[i] = host.violation(MainLoop::sm80);
        } catch (const std::runtime_error&) {
          ++refused;
        }
      });
    }
  }
  CHECK(refused == stops);
  CHECK(std::ranges::count(violations, "") == threads - stops);
  CHECK(context.counters().tuned == 1);
  CHECK_FALSE(overlapped);
}
