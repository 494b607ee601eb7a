// TensorParallel where rank 0's Context tunes: all ranks measure together once, and what they found is kept. The
// measuring itself: tests/test_rank_tuning.cpp.
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "catch.hpp"
#include "context_fixtures.hpp"
#include "context_internals.hpp"
#include "core/rank_problem.hpp"
#include "fake_nccl.hpp"
#include "overlapped_cases.hpp"
#include "parallel/rank_choice.hpp"
#include "parallel_cases.hpp"
#include "parallel_world.hpp"
#include "tune/tuning_db.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int ranks = 2;
const Problem small = bf16_problem(ranks * 40, 72, 64);  // shards that are too short to overlap unmeasured

ContextOptions options_of(const TemporaryDirectory& cache, Tuning tuning) {
  ContextOptions options = emulator_options(cache, tuning);
  options.architecture = "sm_90a";
  options.tuning_budget_seconds = 60;
  return options;
}

/// A record of the emulator's, by which something is chosen and nothing measured.
void record(const TemporaryDirectory& cache, const NormalProblem& problem, const AcrossRanks& across,
            ParallelMethod method, const KernelConfig& config) {
  const Context context(options_of(cache, Tuning::off));
  const DeviceInfo& device = ContextInternals::backend(context).device();
  TuningRecord record;
  record.problem = problem;
  record.across = across;
  record.method = method;
  record.device_name = device.name;
  record.compute_capability = device.compute_capability;
  record.sm_count = device.sm_count;
  record.emulated = device.emulated;
  record.config = config;
  record.median_us = 123;
  TuningDb(cache.path() / tuning_db_name).add(record);
}
void record(const TemporaryDirectory& cache, Exchange exchange, ParallelMethod method, const KernelConfig& config) {
  const RankProblem measured = measured_problem(rank_problem(small, exchange, ranks), false);
  record(cache, shape_of(measured.asked), {ranks, exchange}, method, config);
}

struct Outcome {
  ParallelPlan plans[ranks];
  std::uint64_t tuned[ranks] = {};
  std::string wrong;  // of D
};

/// One call of ranks whose Contexts have one cache; rank 0 alone has this tuning.
Outcome run(const TemporaryDirectory& cache, Tuning tuning, Exchange exchange, Overlap overlap = Overlap::automatic) {
  FakeNccl nccl(ranks);
  ParallelCase product(small, exchange, ranks);
  const ParallelCase untouched = product;
  Outcome outcome;
  std::vector<std::unique_ptr<Context>> contexts;
  for (int rank = 0; rank < ranks; ++rank)
    contexts.push_back(std::make_unique<Context>(options_of(cache, rank == 0 ? tuning : Tuning::off)));
  std::vector<std::unique_ptr<TensorParallel>> parallel(ranks);
  on_each_rank(ranks, [&](int rank) {
    const auto i = std::size_t(rank);
    parallel[i] = std::make_unique<TensorParallel>(*contexts[i], nccl.communicator(rank),
                                                   TensorParallelOptions{.overlap = overlap});
    for (int call = 0; call < 2; ++call)
      parallel[i]->gemm(small, exchange, product.operands(rank), ParallelWorld::stream_of(rank));
    ContextInternals::backend(*contexts[i]).synchronize(ParallelWorld::stream_of(rank));
    parallel[i]->check();
    outcome.plans[rank] = parallel[i]->plan(small, exchange);
    outcome.tuned[rank] = contexts[i]->counters().tuned;
  });
  for (int rank = 0; rank < ranks && outcome.wrong.empty(); ++rank) outcome.wrong = product.violation(rank);
  if (!product.has_inputs_of(untouched)) outcome.wrong = "an input has changed";
  if (nccl.ranks_disagreed) outcome.wrong = "the ranks' collectives differ";
  return outcome;
}

std::vector<RankedConfig> ranked(const TemporaryDirectory& cache, Exchange exchange) {
  const Context context(options_of(cache, Tuning::off));
  std::string why_not;
  return Overlapped::ranked(context, ranks, small, exchange, 6, why_not);
}

KernelConfig config_of(const TemporaryDirectory& cache, Exchange exchange, ParallelMethod method) {
  Context context(options_of(cache, Tuning::off));
  if (method == ParallelMethod::unfused) return context.plan(rank_problem(small, exchange, ranks).product).config;
  return ranked(cache, exchange).back().config;  // not the model's first
}

}  // namespace

TEST_CASE("The ranks measure together on first use, and what they found is used from then on",
          "[parallel][rank_tuning][emulated]") {
  const Exchange exchange = GENERATE(Exchange::all_gather_a, Exchange::reduce_scatter_d);
  const TemporaryDirectory cache;
  // The product alone has been tuned, as that takes long.
  record(cache, shape_of(rank_problem(small, exchange, ranks).product), {}, ParallelMethod::unfused,
         config_of(cache, exchange, ParallelMethod::unfused));
  const CapturedLog log;
  const Outcome first = run(cache, Tuning::on, exchange);
  CHECK(first.wrong == "");
  CHECK(first.tuned[0] == 1);
  CHECK(first.tuned[1] == 0);
  const std::size_t overlapped = ranked(cache, exchange).size();
  CHECK(overlapped > 1);
  CHECK_THAT(first.plans[0].why,
             ContainsSubstring("of " + std::to_string(overlapped + 1) + " that all ranks measured together now"));
  CHECK(first.plans[0].gemm.source == PlanSource::measured);
  CHECK(first.plans[0].measured_us > 0);
  CHECK(first.plans[1].measured_us == first.plans[0].measured_us);
  CHECK(first.plans[1].overlapped == first.plans[0].overlapped);
  CHECK(first.plans[1].gemm.config == first.plans[0].gemm.config);
  CHECK_THAT(first.plans[1].explain(),
             ContainsSubstring("measured        ") && ContainsSubstring("by all ranks together"));
  CHECK(log.text() == "");

  for (const Tuning tuning : {Tuning::on, Tuning::cached}) {
    const Outcome again = run(cache, tuning, exchange);
    CHECK(again.wrong == "");
    CHECK(again.tuned[0] == 0);
    CHECK(again.plans[0].gemm.source == PlanSource::exact);
    CHECK_THAT(again.plans[0].why, ContainsSubstring("measured 20") && ContainsSubstring("by all ranks together"));
    for (const ParallelPlan& plan : again.plans) {
      CHECK(plan.overlapped == first.plans[0].overlapped);
      CHECK(plan.gemm.config == first.plans[0].gemm.config);
      CHECK(plan.measured_us == first.plans[0].measured_us);
    }
  }
}

TEST_CASE("What is recorded across ranks goes before the rule for what is not measured",
          "[parallel][rank_tuning][emulated]") {
  const TemporaryDirectory cache;
  const Exchange exchange = Exchange::all_gather_a;
  const KernelConfig config = config_of(cache, exchange, ParallelMethod::overlapped);
  record(cache, exchange, ParallelMethod::overlapped, config);
  const Outcome recorded = run(cache, Tuning::cached, exchange);
  CHECK(recorded.wrong == "");
  for (const ParallelPlan& plan : recorded.plans) {
    CHECK(plan.overlapped);
    CHECK(plan.gemm.config == config);
    CHECK(plan.measured_us == 123);
  }
  const auto is_by_rule = [&](const Outcome& outcome, const std::string& why) {
    CHECK(outcome.wrong == "");
    for (const ParallelPlan& plan : outcome.plans) {
      CHECK_FALSE(plan.overlapped);
      CHECK(plan.measured_us == 0);
      CHECK_THAT(plan.why, ContainsSubstring(why));
    }
  };
  is_by_rule(run(cache, Tuning::off, exchange), "shards of 40 rows are too short");
  is_by_rule(run(cache, Tuning::cached, exchange, Overlap::none), "asked for by Overlap::none");
  is_by_rule(run(cache, Tuning::cached, Exchange::reduce_scatter_d), "shards of 40 rows are too short");
}

TEST_CASE("Whichever call of NCCL fails while the ranks measure, no rank waits for ever",
          "[parallel][rank_tuning][emulated]") {
  const Exchange exchange = Exchange::reduce_scatter_d;
  const TemporaryDirectory kernels;
  record(kernels, shape_of(rank_problem(small, exchange, ranks).product), {}, ParallelMethod::unfused,
         config_of(kernels, exchange, ParallelMethod::unfused));
  const std::string before = file_text(kernels.path() / tuning_db_name);
  const CapturedLog log;
  int failed = 0;
  for (int call = 4;; call += 3) {  // those before are the communicator's own
    CAPTURE(call);
    write_file(kernels.path() / tuning_db_name, before);  // nothing is known across ranks
    FakeNccl nccl(ranks);
    nccl.patience = std::chrono::milliseconds(5);
    nccl.longest_wait = std::chrono::milliseconds(600);  // the emulator's next launch waits for as long
    nccl.fail(1, call, nccl::Result::internal_error);
    std::optional<Error> errors[ranks];
    std::vector<std::unique_ptr<Context>> contexts;
    std::vector<std::unique_ptr<TensorParallel>> parallel(ranks);
    for (int rank = 0; rank < ranks; ++rank)
      contexts.push_back(std::make_unique<Context>(options_of(kernels, rank == 0 ? Tuning::on : Tuning::off)));
    on_each_rank(ranks, [&](int rank) {
      const auto i = std::size_t(rank);
      errors[rank] = error_if_any([&] {
        parallel[i] = std::make_unique<TensorParallel>(*contexts[i], nccl.communicator(rank),
                                                       TensorParallelOptions{.timeout_seconds = 0.3});
        parallel[i]->prepare(small, exchange);
      });
    });
    nccl.give_up();
    const bool measured = contexts[0]->counters().tuned > 0;
    parallel.clear();
    if (!errors[1]) {
      CHECK_FALSE(errors[0]);
      CHECK(measured);
      break;
    }
    ++failed;
    CHECK(errors[1]->code() == ErrorCode::communicator_failed);
    REQUIRE(errors[0]);
    CHECK(errors[0]->code() == ErrorCode::peer_lost);
  }
  CHECK(failed > 8);
}

TEST_CASE("Nothing is measured together where there is nothing to compare", "[parallel][rank_tuning][emulated]") {
  const TemporaryDirectory cache;
  for (const auto& [exchange, overlap] :
       {std::pair{Exchange::all_reduce_d, Overlap::automatic}, std::pair{Exchange::all_gather_a, Overlap::none}}) {
    record(cache, shape_of(rank_problem(small, exchange, ranks).product), {}, ParallelMethod::unfused,
           config_of(cache, exchange, ParallelMethod::unfused));
    const Outcome outcome = run(cache, Tuning::on, exchange, overlap);
    CHECK(outcome.wrong == "");
    CHECK(outcome.tuned[0] == 0);
    CHECK(outcome.plans[1].measured_us == 0);
  }
}

TEST_CASE("What is measured in a problem's place has the same factors, and whole buckets of rows a rank",
          "[rank_tuning]") {
  Problem problem = small;
  problem.alpha = 3;
  problem.m = 3 * 72;
  const auto measured = [&](Exchange exchange, bool bucket_m) {
    return measured_problem(rank_problem(problem, exchange, 3), bucket_m).asked;
  };
  CHECK(measured(Exchange::all_gather_a, false).m == 216);
  CHECK(measured(Exchange::all_gather_a, false).alpha == 1);
  CHECK(measured(Exchange::all_gather_a, true).m == 3 * 128);
  CHECK(measured(Exchange::reduce_scatter_d, true).m == 3 * 128);
  CHECK(measured(Exchange::all_reduce_d, true).m == 256);
  problem.a.layout = Layout::column_major;
  CHECK(measured(Exchange::reduce_scatter_d, true).a.ld == 3 * 128);
  problem.alpha = 0;
  CHECK(measured(Exchange::reduce_scatter_d, false).alpha == 0);
}

TEST_CASE("What a callback throws comes out on its rank, and is an error on the others at once",
          "[parallel][rank_tuning]") {
  const TemporaryDirectory cache;
  FakeNccl nccl(ranks);
  std::vector<std::unique_ptr<Context>> contexts;
  for (int rank = 0; rank < ranks; ++rank) {
    ContextOptions options = options_of(cache, rank == 0 ? Tuning::on : Tuning::off);
    if (rank == 0) options.progress = [](const Problem&, int, int) { throw 42; };
    contexts.push_back(std::make_unique<Context>(options));
  }
  int thrown = 0;
  std::optional<Error> told;
  on_each_rank(ranks, [&](int rank) {
    TensorParallel parallel(*contexts[std::size_t(rank)], nccl.communicator(rank));
    try {
      parallel.prepare(small, Exchange::reduce_scatter_d);
    } catch (int what) {
      thrown = what;
    } catch (const Error& error) {
      told = error;
    }
    parallel.check();
  });
  CHECK(thrown == 42);
  REQUIRE(told);
  CHECK(told->code() == ErrorCode::internal);
  CHECK_THAT(told->what(), ContainsSubstring("rank 0 of 2 could not go on"));
}
