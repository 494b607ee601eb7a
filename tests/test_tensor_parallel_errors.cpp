// What goes wrong between ranks: refusals, ranks that disagree, are lost or late, and calls of NCCL that fail.
#include <chrono>

#include "catch.hpp"
#include "context_fixtures.hpp"
#include "errors.hpp"
#include "parallel_world.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;

namespace {

constexpr TensorParallelOptions impatient{.timeout_seconds = 0.3};
const Problem plain{.m = 8, .n = 16, .k = 32};

}  // namespace

TEST_CASE("What no exchange serves is refused by name, on all ranks", "[parallel][errors]") {
  ParallelWorld world(2);
  struct Refused {
    Problem problem;
    Exchange exchange;
    const char* why;
  };
  Problem vectors{.m = 8, .n = 16, .k = 32, .a = {e4m3}, .b = {e4m3}, .d = {bf16}};
  vectors.a.scaling = Scaling::vector;
  Problem blocks = vectors;
  blocks.a.scaling = Scaling::block_1x128;
  blocks.b.scaling = Scaling::block_128x128;
  const Refused all[] = {
      {{.m = 8, .n = 16, .k = 32, .batch = 2}, Exchange::all_reduce_d, "takes no batch; call it for each matrix"},
      {{.m = 8, .n = 16, .k = 32, .batch = 2, .grouping = Grouping::offsets},
       Exchange::all_gather_a,
       "takes no groups"},
      {vectors, Exchange::reduce_scatter_d, "takes no vectors of scales"},
      {blocks, Exchange::all_gather_a, "takes no scales of blocks"},
      {{.m = 9, .n = 16, .k = 32}, Exchange::all_gather_a, "m = 9 is not divided by 2 ranks"},
      {{.m = 7, .n = 16, .k = 32}, Exchange::reduce_scatter_d, "pad M to a multiple of 2"},
      {{.m = 8, .n = 16, .k = 32, .a = {.layout = Layout::column_major}}, Exchange::all_gather_a, "transpose A"},
      {{.m = -1, .n = 16, .k = 32}, Exchange::all_reduce_d, "m = -1"},
      {plain, Exchange(9), "there is no such exchange"},
  };
  for (const Refused& refused : all) {
    CAPTURE(refused.why);
    for (const auto& error :
         world.errors([&](int rank) { world.of(rank).prepare(refused.problem, refused.exchange); })) {
      REQUIRE(error);
      CHECK(error->code() == ErrorCode::invalid_problem);
      CHECK_THAT(error->what(), ContainsSubstring(refused.why));
      CHECK_FALSE(error->problem().empty());
    }
  }
  CHECK(world.run(plain, Exchange::all_gather_a) == "");
}

TEST_CASE("Ranks that ask for other things hear so on all ranks, and who they are", "[parallel][errors]") {
  ParallelWorld world(3, impatient);
  const auto check = [&](const std::function<void(int)>& call) {
    for (const auto& error : world.errors(call)) {
      REQUIRE(error);
      CHECK(error->code() == ErrorCode::invalid_problem);
      CHECK_THAT(error->what(), ContainsSubstring("not what rank 0 does is asked for by rank 1;"));
    }
    CHECK(world.run({.m = 6, .n = 16, .k = 8}, Exchange::all_reduce_d) == "");  // and all is well again
  };
  check([&](int rank) { world.of(rank).prepare({.m = 6, .n = 16, .k = rank == 1 ? 16 : 32}, Exchange::all_gather_a); });
  check([&](int rank) {
    world.of(rank).prepare({.m = 6, .n = 16, .k = 32}, rank == 1 ? Exchange::all_reduce_d : Exchange::all_gather_a);
  });
}

TEST_CASE("What only one rank cannot do, none does", "[parallel][errors]") {
  ParallelWorld world(2, impatient);
  const auto errors = world.errors([&](int rank) {
    world.of(rank).prepare({.m = 8, .n = 16, .k = 32, .batch = rank == 1 ? 2 : 1}, Exchange::all_gather_a);
  });
  REQUIRE((errors[0] && errors[1]));
  CHECK_THAT(errors[0]->what(),
             ContainsSubstring("rank 1 of 2 could not go on, and so no rank does: all_gather_a takes "
                               "no batch"));
  CHECK_THAT(errors[1]->what(), !ContainsSubstring("rank 1"));
  CHECK(world.run(plain, Exchange::all_gather_a) == "");
}

TEST_CASE("Staging memory is bounded, and the error says what is needed", "[parallel][errors]") {
  ParallelWorld world(2, {.staging_bytes = 512});
  CHECK(world.run(plain, Exchange::all_gather_a) == "");  // 8 x 32 of f16
  const Problem larger{.m = 10, .n = 16, .k = 32};
  for (const auto& error : world.errors([&](int rank) { world.of(rank).prepare(larger, Exchange::all_gather_a); })) {
    REQUIRE(error);
    CHECK(error->code() == ErrorCode::workspace_too_small);
    CHECK_THAT(error->what(), ContainsSubstring("needs 640 bytes of staging"));
  }
  CHECK(world.run(plain, Exchange::all_gather_a) == "");
  CHECK(world.run(larger, Exchange::reduce_scatter_d) == "");
}

TEST_CASE("A rank that is lost ends the others' waits within the time-out", "[parallel][errors]") {
  ParallelWorld world(3, impatient);
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = world.errors([&](int rank) {
    if (rank != 2) world.of(rank).prepare(plain, Exchange::all_reduce_d);
  });
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
  for (const int rank : {0, 1}) {
    const auto& error = errors[std::size_t(rank)];
    REQUIRE(error);
    CHECK(error->code() == ErrorCode::peer_lost);
    CHECK_THAT(error->what(), ContainsSubstring(rank == 0 ? "rank 0: one of the ranks 1, 2 did not answer in 0.3 s"
                                                          : "rank 1: one of the ranks 0, 2 did not answer in 0.3 s"));
    CHECK(refusal(ErrorCode::peer_lost, [&] { world.of(rank).check(); }) == error->what());
    CHECK(refusal(ErrorCode::peer_lost, [&] { world.of(rank).gemm(plain, Exchange::all_reduce_d, {}); }) ==
          error->what());
  }
  world.of(2).check();
}

TEST_CASE("A rank that is late is waited for", "[parallel][errors]") {
  ParallelWorld world(2, {.timeout_seconds = 60});
  ParallelCase product(plain, Exchange::reduce_scatter_d, 2);
  on_each_rank(2, [&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    world.of(rank).prepare(plain, Exchange::reduce_scatter_d);
  });
  CHECK(world.run(product, Exchange::reduce_scatter_d) == "");
}

TEST_CASE("abort() ends a wait, and all calls after it", "[parallel][errors]") {
  ParallelWorld world(2, {.timeout_seconds = 0});  // would wait for ever
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    world.of(0).abort();
  });
  const Error error = error_of([&] { world.of(0).prepare(plain, Exchange::all_reduce_d); });
  other.join();
  CHECK(error.code() == ErrorCode::communicator_failed);
  CHECK_THAT(error.what(), ContainsSubstring("rank 0: abort() was called"));
  CHECK(error_of([&] { world.of(0).check(); }).code() == ErrorCode::communicator_failed);
}

TEST_CASE("An error of the communicator's own comes out of check(), and of waits", "[parallel][errors]") {
  ParallelWorld world(2, {.timeout_seconds = 0});
  world.nccl.set_async_error(0, nccl::Result::remote_error);
  world.nccl.set_async_error(1, nccl::Result::system_error);
  CHECK(error_of([&] { world.of(0).prepare(plain, Exchange::all_reduce_d); }).code() == ErrorCode::peer_lost);
  const Error error = error_of([&] { world.of(1).check(); });
  CHECK(error.code() == ErrorCode::communicator_failed);
  CHECK_THAT(error.what(), ContainsSubstring("rank 1: ncclCommGetAsyncError says made to fail (2)"));
  CHECK(error.call() == "ncclCommGetAsyncError");
}

TEST_CASE("Communicators that cannot serve are refused", "[parallel][errors]") {
  const TemporaryDirectory cache;
  Context context(emulator_options(cache));
  FakeNccl nccl(1);
  const Error null = error_of([&] { TensorParallel(context, nullptr); });
  CHECK(null.code() == ErrorCode::communicator_failed);
  CHECK_THAT(null.what(), ContainsSubstring("the communicator is null; give one"));
  CHECK(error_of([&] { TensorParallel(context, nccl.communicator(0), {.overlap = Overlap(7)}); }).code() ==
        ErrorCode::invalid_option);
  CHECK(error_of([&] { TensorParallel(context, nccl.communicator(0), {.timeout_seconds = -1}); }).code() ==
        ErrorCode::invalid_option);
  nccl.device = 3;
  const Error device = error_of([&] { TensorParallel(context, nccl.communicator(0)); });
  CHECK(device.code() == ErrorCode::communicator_failed);
  CHECK_THAT(device.what(), ContainsSubstring("of device 3 and the Context of device 0") && EndsWith("cuda_device=3"));
  nccl.device = 0;

  TensorParallel parallel(context, nccl.communicator(0));
  TensorParallel moved = std::move(parallel);
  CHECK(moved.ranks() == 1);
  parallel.abort();  // NOLINT: of one that was moved from, nothing
  for (const Error& error : {error_of([&] { parallel.rank(); }), error_of([&] { parallel.check(); }),
                             error_of([&] { parallel.prepare(plain, Exchange::all_reduce_d); })}) {
    CHECK(error.code() == ErrorCode::communicator_failed);
    CHECK_THAT(error.what(), ContainsSubstring("this TensorParallel was moved from; use the one"));
  }
}

TEST_CASE("Operands are looked at before anything is sent", "[parallel][errors]") {
  ParallelWorld world(2, impatient);
  Problem problem = plain;
  problem.beta = 1;
  problem.epilogue.bias = Bias::along_n;
  for (const Exchange exchange : parallel_exchanges) {
    CAPTURE(to_string(exchange));
    ParallelCase product(problem, exchange, 2);
    CHECK(world.run(product, exchange) == "");
    world.nccl.forget_calls();
    const auto refused = [&](const std::function<void(Operands&)>& spoil) {
      for (int rank = 0; rank < 2; ++rank) {
        Operands operands = product.operands(rank);
        spoil(operands);
        const Error error =
            error_of([&] { world.of(rank).gemm(problem, exchange, operands, ParallelWorld::stream_of(rank)); });
        CHECK(error.code() == ErrorCode::invalid_operand);
      }
    };
    refused([](Operands& operands) { operands.a = nullptr; });
    refused([](Operands& operands) { operands.b = nullptr; });
    refused([](Operands& operands) { operands.c = nullptr; });
    refused([](Operands& operands) { operands.d = nullptr; });
    refused([](Operands& operands) { operands.bias = nullptr; });
    refused([](Operands& operands) { operands.a = static_cast<const char*>(operands.a) + 1; });
    refused([](Operands& operands) { operands.d = static_cast<char*>(operands.d) + 2; });  // 16 are promised
    refused([](Operands& operands) { operands.d = const_cast<void*>(operands.a); });
    refused([](Operands& operands) { operands.d = const_cast<void*>(operands.b); });
    for (int rank = 0; rank < 2; ++rank) CHECK(world.nccl.calls(rank).empty());
    CHECK(world.run(product, exchange) == "");
  }
}

TEST_CASE("Whichever call of NCCL fails, it is one clear error there, and the other rank does not wait for ever",
          "[parallel][errors]") {
  const TemporaryDirectory cache;
  Context context(emulator_options(cache));
  const auto [exchange, overlap, calls] =
      GENERATE(table<Exchange, Overlap, int>({{Exchange::all_gather_a, Overlap::automatic, 3 + 4 + 2},
                                              {Exchange::reduce_scatter_d, Overlap::automatic, 3 + 4 + 2},
                                              {Exchange::all_reduce_d, Overlap::none, 3 + 4 + 2},
                                              {Exchange::all_reduce_d, Overlap::automatic, 3 + 5 + 3}}));
  Problem problem = plain;
  problem.epilogue.activation = Activation::relu;
  ParallelCase product(problem, exchange, 2);
  int failed = 0;
  for (int call = 1;; ++call) {
    FakeNccl nccl(2);
    nccl.patience = std::chrono::milliseconds(5);
    nccl.longest_wait = std::chrono::milliseconds(300);  // the emulator's next launch waits for as long
    nccl.fail(1, call, nccl::Result::internal_error);
    std::optional<Error> errors[2];
    std::unique_ptr<TensorParallel> parallel[2];
    product.poison();
    on_each_rank(2, [&](int rank) {
      errors[rank] = error_if_any([&] {
        parallel[rank] = std::make_unique<TensorParallel>(
            context, nccl.communicator(rank), TensorParallelOptions{.overlap = overlap, .timeout_seconds = 0.1});
        for (int i = 0; i < 2; ++i)
          parallel[rank]->gemm(problem, exchange, product.operands(rank), ParallelWorld::stream_of(rank));
      });
    });
    nccl.give_up();
    CAPTURE(call, to_string(exchange));
    if (!errors[1]) break;
    ++failed;
    CHECK(errors[1]->code() == ErrorCode::communicator_failed);
    CHECK_THAT(errors[1]->what(), ContainsSubstring("rank 1: nccl") && ContainsSubstring("; "));
    CHECK_FALSE(errors[1]->call().empty());
    if (errors[0]) CHECK(errors[0]->code() == ErrorCode::peer_lost);
  }
  CHECK(failed == calls);  // making it, preparing, and two products by NCCL or three exchanges of memory
  for (int rank = 0; rank < 2; ++rank) CHECK(product.violation(rank) == "");
}
