// How ranks measure together: who is compared with whom, what one rank alone cannot do, and when all stop. What they
// measure is planned here; tests/test_tensor_parallel_tuning.cpp has products.
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "errors.hpp"
#include "fake_nccl.hpp"
#include "parallel/rank_tuning.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Of one rank: a time for each candidate, and what goes wrong.
struct PlannedArms final : RankArms {
  using Fault = std::function<void(const std::string& step, std::size_t candidate)>;

  void allocate() override { at("allocate", 0); }
  void compile(std::size_t candidate) override { at("compile", candidate); }
  void stage(std::size_t candidate) override { at("stage", candidate); }
  void run(std::size_t candidate) override { at("run", candidate); }
  void prepare(std::size_t candidate, int calls) override {
    at("prepare", candidate);
    prepared.push_back({candidate, calls});
  }
  double sample(std::size_t candidate) override {
    samples.push_back(candidate);
    at("sample", candidate);
    return us[candidate];
  }
  void at(const std::string& step, std::size_t candidate) const {
    if (fault) fault(step, candidate);
  }

  std::vector<double> us;
  Fault fault = {};
  std::vector<std::size_t> samples = {};
  std::vector<std::pair<std::size_t, int>> prepared = {};
};

struct Measured {
  std::vector<PlannedArms> arms;
  std::optional<RankTimes> times[2];
  std::optional<Error> errors[2];
  std::string log;

  bool has_sampled(std::size_t candidate) const { return std::ranges::count(arms[0].samples, candidate) > 0; }
};

RankTask task_with(std::size_t candidates, double budget_seconds = 30) {
  RankTask task{.candidates = {}, .budget_seconds = budget_seconds, .emulated = true};
  for (std::size_t i = 0; i < candidates; ++i)
    task.candidates.push_back(
        {i == 0 ? ParallelMethod::unfused : ParallelMethod::overlapped, {.block_m = 64, .block_n = 64 + 8 * int(i)}});
  return task;
}

/// Of two ranks with these times.
Measured measure(const std::vector<std::vector<double>>& us, const RankTask& task,
                 const PlannedArms::Fault& fault_of_rank_1 = {}, double timeout_seconds = 60) {
  Measured measured;
  for (const auto& times : us) measured.arms.emplace_back().us = times;
  measured.arms[1].fault = fault_of_rank_1;
  const CapturedLog log;
  const auto level = logger().level();
  logger().set_level(spdlog::level::info);
  const auto backend = make_emulator_backend({});
  FakeNccl nccl(2);
  on_each_rank(2, [&](int rank) {
    Communicator communicator(nccl.api(), nccl.communicator(rank), *backend, timeout_seconds);
    measured.errors[rank] = error_if_any([&] {
      const RankTask all = task_of_first(communicator, rank == 0 ? task : RankTask{});
      measured.times[rank] = measure_together(communicator, measured.arms[std::size_t(rank)], all);
    });
  });
  logger().set_level(level);
  measured.log = log.text();
  return measured;
}

/// Throws on rank 1 in a step of a candidate.
PlannedArms::Fault failing(const std::string& step, std::size_t candidate, ErrorCode code = ErrorCode::compile_failed) {
  return [=](const std::string& its, std::size_t of) {
    if (its == step && of == candidate) throw Error(code, "ptxas is in a bad mood");
  };
}

}  // namespace

TEST_CASE("Rank 0 tells all ranks what is measured", "[rank_tuning]") {
  const auto backend = make_emulator_backend({});
  FakeNccl nccl(2);
  RankTask given = task_with(most_rank_candidates, 0.25);
  given.bucket_m = true;
  on_each_rank(2, [&](int rank) {
    Communicator communicator(nccl.api(), nccl.communicator(rank), *backend, 60);
    const RankTask task = task_of_first(communicator, rank == 0 ? given : RankTask{});
    if (task.candidates.size() != given.candidates.size()) throw std::runtime_error("other candidates");
    for (std::size_t i = 0; i < given.candidates.size(); ++i)
      if (task.candidates[i].method != given.candidates[i].method ||
          !(task.candidates[i].config == given.candidates[i].config))
        throw std::runtime_error("another candidate");
    if (task.budget_seconds != 0.25 || !task.bucket_m || !task.emulated) throw std::runtime_error("other options");
  });
}

TEST_CASE("The slowest rank's time counts, and all ranks sample the same", "[rank_tuning]") {
  const Measured measured = measure({{10, 5, 8}, {10, 20, 9}}, task_with(3));
  REQUIRE(measured.times[0]);
  CHECK(measured.times[0]->candidate == 2);
  CHECK(measured.times[0]->median_us == 9);
  CHECK(measured.times[0]->measured == 3);
  CHECK_FALSE(measured.times[0]->kept_first);
  CHECK_FALSE(measured.times[1]);
  CHECK(measured.arms[0].samples == measured.arms[1].samples);
  CHECK(measured.arms[0].samples.size() == 2 * 3);
}

TEST_CASE("What is chosen without measuring stays where another gains less than the margin", "[rank_tuning]") {
  const Measured near = measure({{10, 9.85}, {10, 9.85}}, task_with(2));
  REQUIRE(near.times[0]);
  CHECK(near.times[0]->candidate == 0);
  CHECK(near.times[0]->kept_first);
  const Measured far = measure({{10, 9.7}, {10, 9.7}}, task_with(2));
  REQUIRE(far.times[0]);
  CHECK(far.times[0]->candidate == 1);
  RankTask of_many_rounds = task_with(2);
  of_many_rounds.emulated = false;
  const Measured sure = measure({{10, 9.85}, {10, 9.85}}, of_many_rounds);
  REQUIRE(sure.times[0]);
  CHECK(sure.times[0]->candidate == 1);
}

TEST_CASE("What one rank cannot do is skipped on all, and rank 0's log says who", "[rank_tuning]") {
  for (const std::string step : {"compile", "stage", "prepare"}) {
    CAPTURE(step);
    const Measured measured = measure({{10, 1, 5}, {10, 1, 5}}, task_with(3), failing(step, 1));
    REQUIRE(measured.times[0]);
    CHECK(measured.times[0]->candidate == 2);
    CHECK(measured.times[0]->measured == 2);
    CHECK_FALSE(measured.has_sampled(1));
    CHECK(measured.arms[0].samples == measured.arms[1].samples);
    CHECK_THAT(measured.log, ContainsSubstring("skipped overlapped") && ContainsSubstring("rank 1: ptxas is in"));
  }
  int samples = 0;
  const auto at_second_sample = [&](const std::string& step, std::size_t candidate) {
    if (step == "sample" && candidate == 1 && ++samples == 2) throw Error(ErrorCode::launch_failed, "too hot");
  };
  const Measured late = measure({{10, 1, 5}, {10, 1, 5}}, task_with(3), at_second_sample);
  REQUIRE(late.times[0]);
  CHECK(late.times[0]->candidate == 2);
  CHECK(late.arms[0].samples == late.arms[1].samples);
}

TEST_CASE("Where fewer than two can be measured there is no answer", "[rank_tuning]") {
  const Measured measured = measure({{10, 5}, {10, 5}}, task_with(2), failing("compile", 1));
  CHECK_FALSE(measured.times[0]);
  CHECK(measured.arms[0].samples.empty());
  CHECK_FALSE((measured.errors[0] || measured.errors[1]));
  CHECK_THAT(measured.log, ContainsSubstring("warning: tuning across ranks given up, using the cost model's choice: "
                                             "fewer than two could be made ready"));
}

TEST_CASE("A rank that is out of memory ends it for all, with one line", "[rank_tuning]") {
  for (const auto& [step, candidate] :
       {std::pair<std::string, std::size_t>{"allocate", 0}, {"compile", 1}, {"stage", 2}}) {
    CAPTURE(step);
    const Measured measured =
        measure({{10, 1, 5}, {10, 1, 5}}, task_with(3), failing(step, candidate, ErrorCode::out_of_memory));
    CHECK_FALSE((measured.times[0] || measured.times[1]));
    CHECK_FALSE((measured.errors[0] || measured.errors[1]));
    CHECK(measured.arms[0].samples.empty());
    CHECK_THAT(measured.log, ContainsSubstring("given up") && ContainsSubstring("rank 1: ptxas is in"));
    CHECK(std::ranges::count(measured.log, '\n') == 1);
  }
}

TEST_CASE("Rank 0's clock stops all ranks at the same sample, when each has had a round", "[rank_tuning]") {
  RankTask task = task_with(3, 0.2);
  task.emulated = false;
  const auto slow = [](const std::string& step, std::size_t) {
    if (step == "sample") std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  const Measured measured = measure({{1000, 900, 950}, {1000, 900, 950}}, task, slow);
  REQUIRE(measured.times[0]);
  CHECK(measured.times[0]->candidate == 1);
  CHECK(measured.arms[0].samples == measured.arms[1].samples);
  CHECK(measured.arms[0].samples.size() >= 3 + 3);  // to see how long they take, and a round
  CHECK(measured.arms[0].samples.size() < 40);      // of 64
  CHECK(measured.times[0]->seconds < 5);
  // As many calls a sample as fill two milliseconds, on both ranks.
  CHECK(measured.arms[0].prepared == measured.arms[1].prepared);
  CHECK(measured.arms[0].prepared.at(0) == std::pair<std::size_t, int>{0, 2});
  const Measured short_calls = measure({{100, 1}, {50, 1}}, [] {
    RankTask its = task_with(2, 0.2);
    its.emulated = false;
    return its;
  }());
  CHECK(short_calls.arms[1].prepared.at(1) == std::pair<std::size_t, int>{0, 20});
  CHECK(short_calls.arms[1].prepared.at(3) == std::pair<std::size_t, int>{1, 32});
}

TEST_CASE("A rank that is lost meanwhile is missed in time", "[rank_tuning]") {
  int samples = 0;
  const auto leave = [&](const std::string& step, std::size_t) {
    if (step == "sample" && ++samples == 3) throw Error(ErrorCode::peer_lost, "rank 1 has gone");
  };
  const auto begin = std::chrono::steady_clock::now();
  const Measured measured = measure({{10, 5}, {10, 5}}, task_with(2), leave, 0.3);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
  REQUIRE((measured.errors[0] && measured.errors[1]));
  CHECK(measured.errors[0]->code() == ErrorCode::peer_lost);
  CHECK_THAT(measured.errors[0]->what(), ContainsSubstring("rank 0: rank 1 did not answer in 0.3 s"));
}
