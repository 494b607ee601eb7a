// Products under which the ranks of a node exchange what they need, on emulated devices.
#include <iostream>
#include <optional>
#include <stdexcept>

#include "catch.hpp"
#include "gemm_cases.hpp"
#include "overlapped_cases.hpp"
#include "ranks.hpp"

namespace jitgemm::test {
namespace {

void run_call(const NodeCase& node, int call, int rank, Ranks& ranks, Overlapped& overlapped,
              const Overlapped::Prepared& prepared, Backend& backend, Stream stream) {
  NodeOperands operands(node, call, rank, backend);
  ranks.meet(rank);
  overlapped.gemm(prepared, node.problem, operands.operands(), stream);
  backend.synchronize(stream);
  ranks.meet(rank);
  check_report(overlapped, rank);
  if (const std::string wrong = operands.violation(); !wrong.empty()) throw std::runtime_error(wrong);
}

void run(const NodeCase& node) {
  Ranks ranks(node.ranks);
  ranks.run([&](int rank) {
    const ContextOptions options = GemmDevice::emulator(node.seed == 0 ? 0 : node.seed + std::uint64_t(rank));
    Context context(options);
    Backend& backend = ContextInternals::backend(context);
    Overlapped overlapped(context, rank, node.ranks, ranks.all_gather(rank), node.timeout_seconds);
    overlapped.connect();
    std::string why_not;
    const auto chosen = Overlapped::choose(context, node.ranks, node.problem, node.exchange, why_not);
    if (!chosen) throw std::runtime_error("not overlapped: " + why_not);
    auto prepared = overlapped.prepare(node.problem, node.exchange, node.config.value_or(chosen->config));
    overlapped.stage(prepared);
    const Stream stream = backend.create_stream();
    for (int call = 0; call < node.calls; ++call)
      run_call(node, call, rank, ranks, overlapped, prepared, backend, stream);
    ranks.meet(rank);  // all have read what the others send
  });
}

}  // namespace

TEST_CASE("A's shards are gathered under the product", "[parallel]") {
  const auto count = GENERATE(2, 3, 4, 8);
  NodeCase node{.problem = bf16_problem(count * 72, 136, 96), .ranks = count};
  node.seed = GENERATE(0, 5, 8);
  CAPTURE(count, node.seed);
  REQUIRE_NOTHROW(run(node));
}

TEST_CASE("D's sums are scattered from the kernel", "[parallel]") {
  const auto count = GENERATE(2, 3, 4, 8);
  NodeCase node{.problem = bf16_problem(count * 72, 136, 24), .exchange = Exchange::reduce_scatter_d, .ranks = count};
  node.seed = GENERATE(0, 5, 8);
  CAPTURE(count, node.seed);
  REQUIRE_NOTHROW(run(node));
}

TEST_CASE("Overlapped products of every kind of tile", "[parallel]") {
  const Exchange exchange = GENERATE(Exchange::all_gather_a, Exchange::reduce_scatter_d);
  KernelConfig config = GENERATE(tile(64, 64, 4), tile(128, 64, 8), tile(64, 128, 8, true), tile(192, 64, 12));
  config.group_m = GENERATE(0, 2);
  NodeCase node{.problem = bf16_problem(2 * 200, 264, 24), .exchange = exchange};
  node.seed = GENERATE(0, 6);
  node.config = config;
  CAPTURE(int(exchange), to_string(config), node.seed);
  REQUIRE_NOTHROW(run(node));
}

TEST_CASE("What nothing has prepared any more is freed by all ranks together", "[parallel]") {
  constexpr int count = 2;
  Ranks ranks(count);
  ranks.run([&](int rank) {
    Context context(GemmDevice::emulator());
    int exchanges = 0;
    const AllGatherBytes all_gather = [&, its = ranks.all_gather(rank)](const void* own, void* all, std::size_t bytes) {
      ++exchanges;
      its(own, all, bytes);
    };
    Overlapped overlapped(context, rank, count, all_gather, 60);
    if (exchanges != 0) throw std::runtime_error("a rank waits for others where it may fail alone");
    overlapped.connect();
    const auto staged = [&](std::int64_t rows) {
      auto prepared = overlapped.prepare(bf16_problem(count * rows, 136, 64), Exchange::all_gather_a, tile(64, 64, 4));
      overlapped.stage(prepared);
      return prepared;
    };
    std::optional<Overlapped::Prepared> small = staged(64);
    const Overlapped::Prepared large = staged(256);
    exchanges = 0;
    overlapped.drop_unused_memory();
    if (exchanges != 0) throw std::runtime_error("what is used is freed");
    small.reset();
    overlapped.drop_unused_memory();
    if (exchanges != 1) throw std::runtime_error("a rank frees for itself what others may have open");
    overlapped.drop_unused_memory();
    if (exchanges != 1) throw std::runtime_error("what was freed is freed again");
    ranks.meet(rank);
  });
}

/// For tools/removal.py: what a kernel waits for in vain ends it after two seconds.
TEST_CASE("Overlapped products are right in many orders", "[.][full][removal][parallel]") {
  for (std::uint64_t seed = 0; seed < 6; ++seed)
    for (const Exchange exchange : {Exchange::all_gather_a, Exchange::reduce_scatter_d})
      for (KernelConfig config : {tile(64, 64, 4), tile(128, 64, 8), tile(64, 64, 8, true)}) {
        config.grid = 2;
        NodeCase node{.problem = bf16_problem(2 * 136, 136, 24), .exchange = exchange, .seed = seed};
        node.config = config;
        node.timeout_seconds = 2;
        try {
          run(node);
        } catch (const std::exception& error) {
          std::cout << "caught with seed " << seed << ": " << error.what() << std::endl;
          FAIL();
        }
      }
}

}  // namespace jitgemm::test
