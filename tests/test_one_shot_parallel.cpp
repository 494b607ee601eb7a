// TensorParallel where sums are added up in one shot: when it does, what it says, among other calls, and lost ranks.
#include <chrono>
#include <thread>

#include "backend/cuda/cuda_backend.hpp"
#include "catch.hpp"
#include "context_fixtures.hpp"
#include "fake_gpu.hpp"
#include "fake_nvrtc.hpp"
#include "parallel/one_shot.hpp"
#include "parallel_world.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr Exchange all_reduce = Exchange::all_reduce_d;
const Problem plain{.m = 8, .n = 16, .k = 32};

struct OneShotLaunch {
  int grid;
  std::string arguments;  // bytes
};

/// By a driver that runs nothing.
std::vector<OneShotLaunch> launches_of(const Problem& problem, const Constraints& constraints, int calls) {
  static std::vector<OneShotLaunch> launches;
  launches.clear();
  FakeGpu::reset();
  FakeNvrtc::reset();
  cuda::DriverApi driver = FakeGpu::api();
  driver.launch_kernel_ex = [](const CUlaunchConfig* config, CUfunction, void** parameters, void**) {
    launches.push_back({int(config->gridDimX),
                        std::string(static_cast<const char*>(parameters[0]), sizeof(device::OneShotArguments))});
    return CUDA_SUCCESS;
  };
  cuda::NvrtcApi nvrtc = FakeNvrtc::api();
  cuda::driver_for_tests = &driver;
  cuda::nvrtc_for_tests = &nvrtc;
  {
    const TemporaryDirectory cache;
    Context context({.tuning = Tuning::off, .constraints = constraints, .cache_dir = cache.path().string()});
    OneShot one_shot(
        context, 0, 1, [](const void* own, void* all, std::size_t bytes) { std::memcpy(all, own, bytes); }, 60);
    const RankProblem of_rank = rank_problem(problem, all_reduce, 2);
    OneShot::Prepared prepared = one_shot.prepare(of_rank);
    one_shot.stage(prepared);
    void* const memory = FakeGpu::allocate(std::size_t(problem.m * problem.n) * 2);
    for (int call = 0; call < calls; ++call) one_shot.enqueue(prepared, of_rank.finish, {.d = memory}, memory, nullptr);
  }
  cuda::driver_for_tests = nullptr;
  cuda::nvrtc_for_tests = nullptr;
  FakeGpu::reset();
  return launches;
}

ParallelPlan plan_of(ParallelWorld& world, const Problem& problem) { return world.of(1).plan(problem, all_reduce); }

}  // namespace

TEST_CASE("Small sums go in one shot, without NCCL, and the plan says so", "[parallel][one_shot]") {
  ParallelWorld world(2);
  Problem problem = plain;
  problem.beta = 1;
  problem.epilogue = {.bias = Bias::along_n, .activation = Activation::relu};
  ParallelCase product(problem, all_reduce, 2);
  const ParallelPlan before = plan_of(world, problem);
  CHECK(world.run(product, all_reduce) == "");
  world.nccl.forget_calls();
  const auto launches = world.context.counters().launches;
  CHECK(world.run(product, all_reduce) == "");
  CHECK(world.context.counters().launches - launches == 2);  // of both ranks, the products
  for (int rank = 0; rank < 2; ++rank) CHECK(world.nccl.calls(rank).empty());

  const ParallelPlan plan = plan_of(world, problem);
  for (const ParallelPlan& each : {before, plan}) {
    CHECK(each.one_shot);
    CHECK_FALSE(each.overlapped);
    CHECK(each.received_bytes == 2 * 8 * 16 * 2);                      // words of 64 bits have two sums of f16
    CHECK(each.staging_bytes == 8 * 16 * 2 + 2 * 2 * 2 * 8 * 16 * 2);  // sums; two buffers for two ranks
    CHECK((each.exchange_us > 3 && each.exchange_us < 3.1 && each.exposed_us == each.exchange_us));
  }
  CHECK_THAT(plan.explain(),
             ContainsSubstring("overlapped      no, one-shot all-reduce: sums are expected to take 3 us "
                               "in one shot and 18 us by NCCL"));
}

TEST_CASE("NCCL adds up what is large, or asked for, or has no room in one shot", "[parallel][one_shot]") {
  const Problem large{.m = 4096, .n = 8192, .k = 64};
  {
    ParallelWorld world(2);
    CHECK_FALSE(plan_of(world, large).one_shot);
    CHECK_THAT(plan_of(world, large).why, ContainsSubstring("us in one shot and 298 us by NCCL"));
    for (const std::int64_t m : {1, 16, 128}) CHECK(plan_of(world, {.m = m, .n = 8192, .k = 64}).one_shot);
    CHECK_FALSE(world.of(0).plan(plain, Exchange::reduce_scatter_d).one_shot);
    CHECK(plan_of(world, {.m = 8, .n = 16, .k = 0}).why == "nothing is exchanged");
  }
  {
    ParallelWorld world(8);  // each sends to seven others
    CHECK(plan_of(world, {.m = 16, .n = 8192, .k = 64}).one_shot);
    CHECK_FALSE(plan_of(world, {.m = 64, .n = 8192, .k = 64}).one_shot);
  }
  {
    ParallelWorld world(2, {.overlap = Overlap::none});
    CHECK(plan_of(world, plain).why == "asked for by Overlap::none");
    CHECK(world.run(plain, all_reduce) == "");
    CHECK(world.nccl.calls(0).back() == "ncclAllReduce 128");
  }
  {
    ParallelWorld world(2, {.staging_bytes = 1024});  // 8 x 16 of f16 need 2048
    CHECK_THAT(plan_of(world, plain).why, ContainsSubstring("staging_bytes is too small"));
    CHECK(world.run(plain, all_reduce) == "");
    CHECK(world.nccl.calls(0).back() == "ncclAllReduce 128");
    CHECK(world.run({.m = 2, .n = 16, .k = 32}, all_reduce) == "");
    CHECK(plan_of(world, {.m = 2, .n = 16, .k = 32}).one_shot);
  }
}

TEST_CASE("Where devices do not reach each other, NCCL adds up", "[parallel][one_shot][cuda]") {
  FakeGpu::reset();
  FakeNvrtc::reset();
  cuda::DriverApi driver = FakeGpu::api();
  cuda::NvrtcApi nvrtc = FakeNvrtc::api();
  cuda::driver_for_tests = &driver;
  cuda::nvrtc_for_tests = &nvrtc;
  {
    const TemporaryDirectory cache;
    FakeNccl nccl(2);
    nccl.alone = true;  // ranks of one process
    Context context({.tuning = Tuning::off, .cache_dir = cache.path().string()});
    TensorParallel parallel(context, nccl.communicator(0));
    CHECK(parallel.plan(plain, all_reduce).one_shot);  // as far as is known
    parallel.prepare(plain, all_reduce);
    CHECK_FALSE(parallel.plan(plain, all_reduce).one_shot);
    CHECK_THAT(parallel.plan(plain, all_reduce).why, ContainsSubstring("use a process a device"));
  }
  cuda::driver_for_tests = nullptr;
  cuda::nvrtc_for_tests = nullptr;
  FakeGpu::reset();
}

TEST_CASE("A captured call in one shot may be replayed, as its arguments name no call", "[parallel][one_shot][cuda]") {
  const std::vector<OneShotLaunch> launches = launches_of(plain, {}, 2);
  REQUIRE(launches.size() == 2);
  CHECK(launches[0].arguments == launches[1].arguments);
}

TEST_CASE("Sums are added up in one shot by as many SMs as the constraints allow", "[parallel][one_shot][cuda]") {
  const Problem large{.m = 128, .n = 8192, .k = 32};
  const int free = launches_of(large, {}, 1).at(0).grid;
  CHECK(free > 20);
  CHECK(launches_of(large, {.sms = 7}, 1).at(0).grid == 7);
  CHECK(launches_of(plain, {.sms = 7}, 1).at(0).grid == 1);
}

TEST_CASE("Calls in one shot take turns with others, and with other sizes", "[parallel][one_shot]") {
  ParallelWorld world(2);
  const Problem overlapped{.m = 1024, .n = 16, .k = 16, .b = {.layout = Layout::column_major}};
  std::vector<std::pair<Exchange, ParallelCase>> calls;
  for (const std::int64_t m : {1, 9, 3})
    for (const std::int64_t n : {24, 7})
      calls.emplace_back(all_reduce, ParallelCase({.m = m, .n = n, .k = 16, .beta = 1}, all_reduce, 2));
  calls.emplace_back(Exchange::all_gather_a, ParallelCase(overlapped, Exchange::all_gather_a, 2));
  calls.emplace_back(Exchange::reduce_scatter_d, ParallelCase(plain, Exchange::reduce_scatter_d, 2));
  on_each_rank(2, [&](int rank) {
    for (auto& [exchange, product] : calls) world.of(rank).prepare(product.problem(), exchange);
  });
  CHECK(world.of(0).plan(overlapped, Exchange::all_gather_a).overlapped);
  Random random(3);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::size_t> order;
    for (int i = 0; i < 16; ++i) order.push_back(std::size_t(random.between(0, int(calls.size()) - 1)));
    for (auto& [exchange, product] : calls) product.poison();
    on_each_rank(2, [&](int rank) {  // no rank waits for the other between calls
      for (const std::size_t which : order)
        world.of(rank).gemm(calls[which].second.problem(), calls[which].first, calls[which].second.operands(rank),
                            ParallelWorld::stream_of(rank, int(which % 2)));
    });
    for (const std::size_t which : order)
      for (int rank = 0; rank < 2; ++rank) CHECK(calls[which].second.violation(rank) == "");
  }
  CHECK_FALSE(world.nccl.ranks_disagreed);
}

TEST_CASE("A call without elements does not count in one shot", "[parallel][one_shot]") {
  ParallelWorld world(2);
  CHECK(world.run(plain, all_reduce) == "");
  CHECK(world.run({.m = 0, .n = 16, .k = 32}, all_reduce) == "");
  CHECK(world.run({.m = 8, .n = 16, .k = 0}, all_reduce) == "");
  for (int call = 0; call < 3; ++call) CHECK(world.run(plain, all_reduce) == "");
}

TEST_CASE("A rank that makes no call in one shot is lost to the others, by name", "[parallel][one_shot]") {
  ParallelWorld world(2, {.timeout_seconds = 0.5});
  ParallelCase product(plain, all_reduce, 2);
  CHECK(world.run(product, all_reduce) == "");
  const auto begin = std::chrono::steady_clock::now();
  world.of(0).gemm(plain, all_reduce, product.operands(0), ParallelWorld::stream_of(0));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
  CHECK_THAT(refusal(ErrorCode::peer_lost, [&] { world.of(0).check(); }),
             ContainsSubstring("rank 0 has waited in vain for rank 1 in call 2, whose results count for nothing"));
  CHECK(error_of([&] { world.of(0).gemm(plain, all_reduce, product.operands(0)); }).code() == ErrorCode::peer_lost);
}

TEST_CASE("abort() ends a wait in one shot", "[parallel][one_shot]") {
  ParallelWorld world(2, {.timeout_seconds = 0});  // would wait for ever
  ParallelCase product(plain, all_reduce, 2);
  CHECK(world.run(product, all_reduce) == "");
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    world.of(0).abort();
  });
  world.of(0).gemm(plain, all_reduce, product.operands(0), ParallelWorld::stream_of(0));
  other.join();
  CHECK_THAT(refusal(ErrorCode::communicator_failed, [&] { world.of(0).check(); }),
             ContainsSubstring("rank 0: abort() was called"));
}

TEST_CASE("What a rank has no memory for in one shot, none prepares", "[parallel][one_shot][errors]") {
  ParallelWorld world(2, {.timeout_seconds = 5});
  // Rank 1 alone allows no memory for what comes.
  on_each_rank(2, [&](int rank) {
    world.parallel[std::size_t(rank)] = std::make_unique<TensorParallel>(
        world.context, world.nccl.communicator(rank),
        TensorParallelOptions{.staging_bytes = rank == 1 ? std::size_t(64) : SIZE_MAX, .timeout_seconds = 5});
  });
  Problem problem = plain;
  problem.beta = 1;
  for (const Problem& each : {problem, plain}) {  // the other one's own sums are in D
    const auto errors = world.errors([&](int rank) { world.of(rank).prepare(each, all_reduce); });
    REQUIRE((errors[0] && errors[1]));
    CHECK(errors[0]->code() == ErrorCode::workspace_too_small);
    CHECK(errors[1]->code() == ErrorCode::workspace_too_small);
    CHECK_THAT(errors[0]->what(), ContainsSubstring("rank 1 of 2 could not go on"));
    CHECK_THAT(errors[1]->what(),
               ContainsSubstring("TensorParallelOptions::staging_bytes is 64; give the same on all"));
  }
}
