// How candidates are run and checked, and what may go wrong with them.
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "core/problem.hpp"
#include "no_threads.hpp"
#include "tune/measurement.hpp"
#include "tuning_session.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;

TEST_CASE("Kernels shorter than the host's launch are told apart", "[autotuner]") {
  Session session({.time_us = times({1.5, 1.0, 2.0})});  // 3 us a launch on the host
  const auto result = session.run();
  CHECK(result->config == ranked[1].config);
  CHECK_THAT(result->median_us, WithinAbs(1.0, 1e-9));
  CHECK_THAT(result->candidates[0].measured_us, WithinAbs(1.5, 1e-9));
}

TEST_CASE("A small kernel of others stands before half of a sample's calls, and its time does not count",
          "[autotuner]") {
  for (const double neighbour_us : {0.1, 0.9, 20.0}) {
    Session session({.time_us = times({50, 40, 55}), .neighbour_us = neighbour_us});
    const auto result = session.run();
    CHECK_THAT(result->median_us, WithinAbs(40, 1e-6));
    CHECK_THAT(result->candidates[0].measured_us, WithinAbs(50, 1e-6));
    int launches = 0;
    for (const RankedConfig& choice : ranked) launches += session.backend.launches(choice.config) - 1;  // the check
    CHECK((session.backend.neighbours() - launches / 2) % 64 == 0);  // and before what is timed
  }
}

TEST_CASE("What the host takes to launch a sample is in no time, nor decides how many launches a sample has",
          "[autotuner]") {
  Session session({.time_us = times({10, 9, 12}), .host_us = 700, .neighbour_us = 20});
  const auto result = session.run();
  CHECK_THAT(result->median_us, WithinAbs(9, 1e-6));
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    INFO(i);
    CHECK_THAT(result->candidates[i].measured_us, WithinAbs(times({10, 9, 12})(ranked[i].config, 0), 1e-6));
  }
  // The last one is no load that warms up, and out after eight rounds of 400 us.
  CHECK(session.backend.launches(ranked.back().config) > 8 * 32);
}

TEST_CASE("However large, a budget is one, and a candidate that had no time makes a result incomplete", "[autotuner]") {
  for (const double seconds : {1e300, HUGE_VAL}) {
    Session session({});
    session.options.budget_seconds = seconds;
    const auto result = session.run();
    CHECK(result->complete);
    for (const TunedCandidate& candidate : result->candidates) CHECK(candidate.skipped.empty());
  }
  Session hurried({.compile = [](const KernelConfig& config) {
    if (!(config == ranked[0].config)) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }});
  hurried.options.budget_seconds = 0.05;
  CHECK_FALSE(hurried.run()->complete);
}

TEST_CASE("Who waits for kernels has more measured, unless that takes too long", "[autotuner]") {
  const RatedDevice device(device_info_for("sm_90a"));
  const auto count = [&](std::int64_t size, double seconds, bool emulated = false) {
    const NormalProblem square = normalise({.m = size, .n = size, .k = size});
    RatedDevice own = device;
    own.emulated = emulated;
    return candidates_for(square, own, {}, seconds);
  };
  CHECK(count(512, 1) == most_candidates);
  CHECK(count(512, HUGE_VAL) == most_candidates);
  CHECK(count(512, 0.01) == tuned_candidates);
  CHECK(count(16384, 1) == tuned_candidates);
  CHECK(count(16384, 10) > tuned_candidates);
  CHECK(count(512, 1, true) == tuned_candidates);
}

TEST_CASE("A candidate that loses behind others' kernels by more than it gains behind calls is not chosen",
          "[autotuner]") {
  for (const double loss : {0.5, 2.0}) {
    FakeBackend* device = nullptr;
    int last_neighbours = 0;
    // The second one gains 1 us behind a call.
    const auto time_us = [&](const KernelConfig& config, int) {
      const bool behind_neighbour =
          device && std::exchange(last_neighbours, device->neighbours()) != device->neighbours();
      if (!(config == ranked[1].config)) return 20.0;
      return behind_neighbour ? 20.0 + loss : 19.0;
    };
    Session session({.time_us = time_us});
    device = &session.backend;
    CHECK(session.run()->config == (loss < 1 ? ranked[1] : ranked[0]).config);
  }
}

TEST_CASE("Inputs rotate past the L2", "[autotuner]") {
  Session session({});
  REQUIRE(session.run());
  const std::size_t set_bytes = (48 * 64 + 64 * 40) * 2 + 48 * 40 * 4;
  CHECK(session.backend.inputs_seen() * set_bytes > session.backend.device().l2_bytes);
}

TEST_CASE("A candidate that fails to compile or launch is reported and skipped", "[autotuner]") {
  const auto fail = [](const KernelConfig& config) {
    if (config.block_m == 64 && config.block_n == 64) throw Error(ErrorCode::compile_failed, "ptxas is in a bad mood");
  };
  SECTION("compile") {
    Session session({.time_us = times({1, 30, 40}), .compile = fail});
    const auto result = session.run();
    REQUIRE(result);
    CHECK(result->config == ranked[1].config);
    CHECK_THAT(result->candidates[0].skipped, ContainsSubstring("bad mood"));
    CHECK(result->candidates[0].measured_us == 0);
  }
  SECTION("launch") {
    Session session({.time_us = times({1, 30, 40}), .launch = fail});
    const auto result = session.run();
    REQUIRE(result);
    CHECK(result->config == ranked[1].config);
    CHECK_THAT(result->candidates[0].skipped, ContainsSubstring("bad mood"));
  }
  SECTION("a launch that fails while it is timed") {
    int launches = 0;
    const auto fail_later = [&](const KernelConfig& config) {
      if (config.block_m == 32 && ++launches > 20) throw Error(ErrorCode::launch_failed, "too hot");
    };
    Session session({.time_us = times({50, 30, 40}), .launch = fail_later});
    const auto result = session.run();
    REQUIRE(result);
    CHECK(result->config == ranked[2].config);
    CHECK_THAT(result->candidates[1].skipped, ContainsSubstring("too hot"));
  }
  SECTION("all of them") {
    Session session({.compile = [](const KernelConfig&) { throw Error(ErrorCode::no_compiler, "none; install one"); }});
    CHECK_FALSE(session.run());
    CHECK(session.backend.alive() == 0);
  }
}

TEST_CASE("A candidate that computes something else is reported and skipped", "[autotuner]") {
  const auto spoil = [](std::size_t which, auto change) {
    return [which, change](const KernelConfig& config, float* d, const device::Arguments& arguments) {
      if (config == ranked[which].config && arguments.k == 64) change(d, arguments);
    };
  };
  const auto expect_skipped = [](FakeBackend::Behaviour behaviour, std::size_t which) {
    behaviour.time_us = times({30, 30, 30});
    Session session(std::move(behaviour));
    const auto result = session.run();
    REQUIRE(result);
    for (std::size_t i = 0; i < 3; ++i) {
      CAPTURE(i, result->candidates[i].skipped);
      CHECK(result->candidates[i].skipped.empty() == (i != which));
    }
    CHECK_THAT(result->candidates[which].skipped, ContainsSubstring("wrong result"));
    CHECK(result->config == ranked[which == 0 ? 1 : 0].config);
  };
  SECTION("nothing, leaving the last one's D") {
    const auto nothing = [](float* d, const device::Arguments& x) { std::fill(d, d + x.m * x.ldd, std::nanf("")); };
    expect_skipped({.spoil = spoil(1, nothing)}, 1);
  }
  SECTION("all but the last k-block") {
    const auto short_k = [](float* d, const device::Arguments& x) {
      for (int i = 0; i < x.m * x.n; ++i) d[i] *= 0.75f;
    };
    expect_skipped({.spoil = spoil(2, short_k)}, 2);
  }
  // The corner is in the reference's sample, and most single elements are not.
  for (const int element : {0, 17 * 40 + 23, 30 * 40 + 11, 48 * 40 - 1}) {
    const auto one = [element](float* d, const device::Arguments&) { d[element] += 1; };
    SECTION("one element, by the first, second or last: " + std::to_string(element)) {
      expect_skipped({.spoil = spoil(0, one)}, 0);
      expect_skipped({.spoil = spoil(1, one)}, 1);
      expect_skipped({.spoil = spoil(2, one)}, 2);
    }
  }
}

TEST_CASE("Out of memory uses fewer sets of inputs, then the model's choice", "[autotuner]") {
  Session little({.memory_bytes = 40 * 1024});
  REQUIRE(little.run());
  CHECK(little.backend.inputs_seen() < 4);
  Session none({.memory_bytes = 8 * 1024});
  CHECK_FALSE(none.run());
  CHECK(none.backend.alive() == 0);
  CHECK(none.log.count("given up") == 1);
}

TEST_CASE("A spent budget keeps the model's choice", "[autotuner]") {
  Session session({.time_us = times({50, 10, 10})});
  session.options.budget_seconds = 0;
  const auto result = session.run();
  REQUIRE(result);
  CHECK(result->config == ranked[0].config);
  CHECK_THAT(result->median_us, WithinAbs(50, 1e-9));
  CHECK_THAT(result->candidates[1].skipped, ContainsSubstring("budget"));
}

TEST_CASE("A slow compile does not hold up what is compiled, unless it is waited for", "[autotuner]") {
  const auto compile = [](const KernelConfig& config) {
    std::this_thread::sleep_for(std::chrono::milliseconds(config == ranked[1].config ? 1500 : 10));
  };
  Session session({.time_us = times({50, 10, 40}), .compile = compile});
  session.options.budget_seconds = 0.5;
  const auto result = session.run();
  REQUIRE(result);
  CHECK_THAT(result->candidates[1].skipped, ContainsSubstring("budget"));
  CHECK(result->candidates[0].measured_us > 0);
  CHECK(result->config != ranked[1].config);

  Session patient({.time_us = times({50, 10, 40}), .compile = compile});
  patient.options.budget_seconds = 0.5;
  patient.options.waits_for_kernels = true;
  CHECK(patient.run()->config == ranked[1].config);
}

TEST_CASE("Where no thread can be started, the tuner compiles its candidates itself", "[autotuner]") {
  Session session({.time_us = times({50, 10, 40}), .compile = [](const KernelConfig& config) {
                     if (config == ranked[2].config) throw Error(ErrorCode::compile_failed, "ptxas is in a bad mood");
                   }});
  const NoThreads none;
  const auto result = session.run();
  REQUIRE(result);
  CHECK(result->config == ranked[1].config);
  CHECK_THAT(result->candidates[2].skipped, ContainsSubstring("bad mood"));
}

TEST_CASE("Tuning says how far it is, and measures no more candidates than asked", "[autotuner]") {
  Session session({});
  session.options.candidates = 2;
  std::vector<std::pair<int, int>> calls;
  session.options.progress = [&calls](int done, int total) { calls.emplace_back(done, total); };
  const auto result = session.run();
  CHECK(result->candidates.size() == 2);
  REQUIRE(!calls.empty());
  CHECK(calls.front() == std::pair(1, 2));
  CHECK(calls.back() == std::pair(2, 2));
}

TEST_CASE("Tuning says that it goes on while it waits for kernels that others' threads compile", "[autotuner]") {
  Session session({.compile = [](const KernelConfig& config) {
    if (!(config == ranked[0].config)) std::this_thread::sleep_for(std::chrono::milliseconds(400));
  }});
  session.options.waits_for_kernels = true;
  int waited = 0;
  session.options.progress = [&](int done, int) { waited += done == 1; };
  REQUIRE(session.run());
  CHECK(waited > 3);  // each 50 ms, and when the first was there
}

TEST_CASE("Without elements of D, or candidates, there is nothing to measure", "[autotuner]") {
  Session session({});
  CHECK_FALSE(session.run(normalise({.m = 0, .n = 5, .k = 5, .d = {f32}})));
  CHECK_FALSE(session.run(problem, {}));
  CHECK(session.backend.compiles() == 0);
}

TEST_CASE("Samples are summarised by median and spread", "[autotuner]") {
  CHECK(summarise({}).median == 0);
  CHECK(summarise({3}).median == 3);
  CHECK(summarise({3}).spread == 0);
  CHECK(summarise({1, 2, 100}).median == 2);
  CHECK(summarise({4, 2}).median == 3);
  std::vector<double> hundred;
  for (int i = 0; i <= 100; ++i) hundred.push_back(100 + i);
  CHECK(summarise(hundred).median == 150);
  CHECK_THAT(summarise(hundred).spread, WithinAbs(80.0 / 150, 1e-9));
}

TEST_CASE("The autotuner tunes on the emulator", "[autotuner][emulator]") {
  const TemporaryDirectory directory;
  const CapturedLog log;
  const auto backend = make_emulator_backend({.architecture = "sm_80"});
  KernelCache cache({.directory = directory.path()});
  KernelStore store(*backend, cache);
  const NormalProblem small =
      normalise({.m = 40, .n = 72, .k = 200, .alpha = 0.5, .beta = 2, .epilogue = {.bias = Bias::along_n}});
  const auto result =
      tune(*backend, store, small, rank(small, RatedDevice(backend->device()), 4), {.budget_seconds = 30});
  REQUIRE(result);
  CHECK(result->median_us > 0);
  REQUIRE(result->candidates.size() == 4);
  for (const TunedCandidate& candidate : result->candidates) {
    CAPTURE(to_string(candidate.config));
    CHECK(candidate.skipped == "");
  }
}
