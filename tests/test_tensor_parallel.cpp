// TensorParallel where nothing overlaps: ranks are threads, their NCCL is fake_nccl.hpp, their devices are the
// emulator.
#include "catch.hpp"
#include "context_fixtures.hpp"
#include "parallel_world.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("Each exchange gives what one product of all ranks' operands would", "[parallel][emulated]") {
  const int ranks = GENERATE(1, 2, 3, 4, 8);
  ParallelWorld world(ranks, {.overlap = GENERATE(Overlap::automatic, Overlap::none)});
  for (const Exchange exchange : parallel_exchanges) {
    CAPTURE(ranks, to_string(exchange));
    CHECK(world.run({.m = 8 * ranks, .n = 24, .k = 16}, exchange) == "");
    CHECK(world.run({.m = 3 * ranks, .n = 17, .k = 13, .alpha = 0.5, .beta = -1}, exchange) == "");
  }
}

TEST_CASE("Types of A, B and D are exchanged as they are, sums of 8 bits as bf16", "[parallel][emulated]") {
  ParallelWorld world(2, {.overlap = GENERATE(Overlap::automatic, Overlap::none)});
  const auto [a, b, d] = GENERATE(table<DataType, DataType, DataType>({{bf16, bf16, bf16},
                                                                       {f16, f16, f32},
                                                                       {f32, f32, f32},
                                                                       {f64, f64, f64},
                                                                       {e4m3, e5m2, bf16},
                                                                       {e4m3, e4m3, e4m3},
                                                                       {s8, s8, s32}}));
  for (const Exchange exchange : parallel_exchanges) {
    CAPTURE(to_string(a), to_string(d), to_string(exchange));
    CHECK(world.run({.m = 10, .n = 18, .k = 32, .a = {a}, .b = {b}, .d = {d}}, exchange) == "");
  }
}

TEST_CASE("The epilogue is applied once, to the sum", "[parallel][emulated]") {
  ParallelWorld world(2, {.overlap = GENERATE(Overlap::automatic, Overlap::none)});
  for (const Exchange exchange : parallel_exchanges) {
    CAPTURE(to_string(exchange));
    for (const int n : {18, 19}) {
      CHECK(world.run({.m = 6,
                       .n = n,
                       .k = 16,
                       .alpha = 2,
                       .beta = 0.5,
                       .epilogue = {.bias = Bias::along_n, .activation = Activation::relu}},
                      exchange) == "");
      CHECK(world.run({.m = 6, .n = n, .k = 16, .epilogue = {.bias = Bias::along_m}}, exchange) == "");
    }
    CHECK(world.run({.m = 6, .n = 18, .k = 16, .epilogue = {.activation = Activation::gelu_tanh}}, exchange) == "");
    CHECK(world.run({.m = 6, .n = 18, .k = 16, .alpha = -0.25}, exchange) == "");
  }
}

TEST_CASE("Rows may lie apart, and B and a summed A in either layout", "[parallel][emulated]") {
  ParallelWorld world(2, {.overlap = GENERATE(Overlap::automatic, Overlap::none)});
  for (const Exchange exchange : parallel_exchanges) {
    CAPTURE(to_string(exchange));
    CHECK(world.run({.m = 6, .n = 18, .k = 16, .a = {.ld = 24}, .b = {.ld = 20}, .d = {.ld = 26}}, exchange) == "");
    CHECK(world.run({.m = 6,
                     .n = 18,
                     .k = 16,
                     .b = {.layout = Layout::column_major, .ld = 21},
                     .c = {.ld = 19},
                     .d = {.ld = 23},
                     .beta = 1},
                    exchange) == "");
    CHECK(world.run({.m = 2, .n = 18, .k = 16, .a = {.ld = 24}, .d = {.ld = 26}}, exchange) == "");
    if (exchange != Exchange::all_gather_a)
      CHECK(world.run({.m = 6, .n = 18, .k = 16, .a = {.layout = Layout::column_major}}, exchange) == "");
  }
}

TEST_CASE("Sizes and factors of zero work on all ranks", "[parallel][emulated]") {
  ParallelWorld world(2, {.overlap = GENERATE(Overlap::automatic, Overlap::none)});
  for (const Exchange exchange : parallel_exchanges) {
    CAPTURE(to_string(exchange));
    CHECK(world.run({.m = 0, .n = 18, .k = 16}, exchange) == "");
    CHECK(world.run({.m = 4, .n = 0, .k = 16}, exchange) == "");
    CHECK(world.run({.m = 4, .n = 18, .k = 0}, exchange) == "");
    const Epilogue epilogue{.bias = Bias::along_m, .activation = Activation::relu};
    CHECK(world.run({.m = 4, .n = 18, .k = 0, .beta = 2, .epilogue = epilogue}, exchange) == "");
    CHECK(world.run({.m = 4, .n = 18, .k = 16, .alpha = 0, .beta = 2, .epilogue = epilogue}, exchange) == "");
  }
  for (int rank = 0; rank < 2; ++rank)
    for (const std::string& call : world.nccl.calls(rank)) CHECK_THAT(call, !ContainsSubstring("Reduce"));
}

TEST_CASE("all_reduce_d takes any m", "[parallel][emulated]") {
  ParallelWorld world(3);
  CHECK(world.run({.m = 1, .n = 16, .k = 8}, Exchange::all_reduce_d) == "");
  CHECK(world.run({.m = 7, .n = 15, .k = 8, .beta = 1}, Exchange::all_reduce_d) == "");
}

TEST_CASE("A prepared product is one collective and the product, and sums arrive in D where they can",
          "[parallel][emulated]") {
  ParallelWorld world(2, {.overlap = Overlap::none});
  const auto again = [&](const Problem& problem, Exchange exchange) {
    ParallelCase product(problem, exchange, 2);
    CHECK(world.run(product, exchange) == "");
    world.nccl.forget_calls();
    const auto before = world.context.counters();
    CHECK(world.run(product, exchange) == "");
    CHECK(world.context.counters().launches - before.launches == 2);  // of both ranks, the products
    CHECK(world.context.counters().compiles == before.compiles);
    return world.nccl.calls(1);
  };
  const auto staging = [&](const Problem& problem, Exchange exchange) {
    return world.of(1).plan(problem, exchange).staging_bytes;
  };
  const Problem plain{.m = 8, .n = 16, .k = 32};
  using Calls = std::vector<std::string>;
  CHECK(again(plain, Exchange::all_gather_a) == Calls{"ncclAllGather 256"});
  CHECK(staging(plain, Exchange::all_gather_a) == 512);
  CHECK(again(plain, Exchange::reduce_scatter_d) == Calls{"ncclReduceScatter 64"});
  CHECK(staging(plain, Exchange::reduce_scatter_d) == 256);
  CHECK(again(plain, Exchange::all_reduce_d) == Calls{"ncclAllReduce 128"});
  CHECK(staging(plain, Exchange::all_reduce_d) == 0);
  Problem with_c = plain;
  with_c.beta = 1;
  CHECK(again(with_c, Exchange::all_reduce_d) == Calls{"ncclAllReduce 128"});
  CHECK(staging(with_c, Exchange::all_reduce_d) == 256);

  // Other factors need nothing new, but for those that make a sum D as it is.
  world.nccl.forget_calls();
  with_c.alpha = 2;
  CHECK(again(with_c, Exchange::all_reduce_d).size() == 1);
  with_c.alpha = 3;
  with_c.beta = -0.5;
  world.nccl.forget_calls();
  CHECK(world.run(with_c, Exchange::all_reduce_d) == "");
  for (const std::string& call : world.nccl.calls(0)) CHECK_THAT(call, !ContainsSubstring("ncclAllGather"));
}

TEST_CASE("One rank multiplies and asks nobody", "[parallel][emulated]") {
  ParallelWorld world(1);
  for (const Exchange exchange : parallel_exchanges) {
    CHECK(world.run({.m = 5, .n = 18, .k = 16, .a = {.layout = Layout::column_major}, .beta = 1}, exchange) == "");
    const ParallelPlan plan = world.of(0).plan({.m = 5, .n = 18, .k = 16}, exchange);
    CHECK(plan.staging_bytes + plan.received_bytes == 0);
    CHECK(plan.why == "nothing is exchanged");
  }
  for (const std::string& call : world.nccl.calls(0)) CHECK_THAT(call, ContainsSubstring("ncclComm"));
}

TEST_CASE("All ranks use what rank 0 has chosen, and say so", "[parallel][emulated]") {
  const TemporaryDirectory caches[2];
  FakeNccl nccl(2);
  ContextOptions options[] = {emulator_options(caches[0]), emulator_options(caches[1])};
  options[1].constraints.batch_invariant = true;  // would choose otherwise
  const Problem problem{.m = 16, .n = 16, .k = 2048};
  ParallelCase product(problem, Exchange::reduce_scatter_d, 2);
  ParallelPlan plans[2];
  std::pair<int, int> ranks[2];
  bool own_differs = false;
  on_each_rank(2, [&](int rank) {
    Context context(options[rank]);
    TensorParallel parallel(context, nccl.communicator(rank));
    const KernelConfig own = parallel.plan(problem, Exchange::reduce_scatter_d).gemm.config;
    parallel.prepare(problem, Exchange::reduce_scatter_d);
    plans[rank] = parallel.plan(problem, Exchange::reduce_scatter_d);
    if (rank == 1) own_differs = !(own == plans[rank].gemm.config);
    parallel.gemm(problem, Exchange::reduce_scatter_d, product.operands(rank), ParallelWorld::stream_of(rank));
    ranks[rank] = {parallel.rank(), parallel.ranks()};
  });
  CHECK(ranks[0] == std::pair(0, 2));
  CHECK(ranks[1] == std::pair(1, 2));
  CHECK(own_differs);
  CHECK(plans[0].gemm.config == plans[1].gemm.config);
  for (int rank = 0; rank < 2; ++rank) CHECK(product.violation(rank) == "");
  CHECK(plans[1].rank == 1);
  CHECK(plans[1].received_bytes == 8 * 16 * 2);
  CHECK_THAT(plans[1].gemm.why, ContainsSubstring("rank 0's: "));
  const std::string text = plans[1].explain();
  CHECK_THAT(text, ContainsSubstring("reduce_scatter_d, this is rank 1 of 2"));
  CHECK_THAT(text, ContainsSubstring("overlapped      no: "));
  CHECK_THAT(text, ContainsSubstring("256 bytes by each rank"));
  CHECK_THAT(text, ContainsSubstring("BLK_M, BLK_N, BLK_K"));
}

TEST_CASE("Calls on two streams share the staging memory one after the other", "[parallel][emulated]") {
  ParallelWorld world(2);
  ParallelCase one({.m = 8, .n = 16, .k = 32}, Exchange::all_gather_a, 2, 1),
      other({.m = 8, .n = 16, .k = 32}, Exchange::all_gather_a, 2, 2);
  on_each_rank(2, [&](int rank) {
    for (int call = 0; call < 5; ++call) {
      world.of(rank).gemm(one.problem(), Exchange::all_gather_a, one.operands(rank), ParallelWorld::stream_of(rank, 1));
      world.of(rank).gemm(other.problem(), Exchange::all_gather_a, other.operands(rank),
                          ParallelWorld::stream_of(rank, 2));
    }
  });
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(one.violation(rank) == "");
    CHECK(other.violation(rank) == "");
  }
}
