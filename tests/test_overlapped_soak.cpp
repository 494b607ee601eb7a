// Many overlapped products one after the other on emulated devices, no rank waiting for the others between calls and
// one of them late, on any streams: the same bits each time.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <thread>

#include "catch.hpp"
#include "gemm_cases.hpp"
#include "overlapped_cases.hpp"
#include "ranks.hpp"

namespace jitgemm::test {
namespace {

struct Soak {
  NodeCase node;  ///< its exchange is not looked at: calls have both, in an order that its seed draws
  int calls = 100;
  bool one_buffer = false;
  int ends_after = -1;  ///< of the last rank: calls after which it makes no more
  int operand_sets = 3;
};

constexpr Exchange exchanges[] = {Exchange::all_gather_a, Exchange::reduce_scatter_d};

/// What one rank has of a soak.
class SoakRank {
 public:
  SoakRank(const Soak& soak, int rank, Ranks& ranks)
      : soak_(soak),
        rank_(rank),
        context_(GemmDevice::emulator(soak.node.seed == 0 ? 0 : soak.node.seed + std::uint64_t(rank))),
        backend_(ContextInternals::backend(context_)),
        overlapped_(context_, rank, soak.node.ranks, ranks.all_gather(rank), soak.node.timeout_seconds),
        delays_(soak.node.seed * 100 + std::uint64_t(rank)) {
    overlapped_.connect();
    if (soak.one_buffer) overlapped_.take_one_buffer();
    for (int i = 0; i < 3; ++i) streams_.push_back(backend_.create_stream());
    for (const Exchange exchange : exchanges) {
      nodes_.push_back(soak.node);
      nodes_.back().exchange = exchange;
    }
    for (const NodeCase& node : nodes_) {
      products_.push_back(overlapped_.prepare(node.problem, node.exchange, *node.config));
      overlapped_.stage(products_.back());
      for (int set = 0; set < soak.operand_sets; ++set)
        operands_.push_back(std::make_unique<NodeOperands>(node, set, rank, backend_));
    }
    first_.resize(operands_.size());
  }

  void run() {
    Random random(soak_.node.seed);
    int late = 0;
    for (int call = 0; call < soak_.calls && !(rank_ == soak_.node.ranks - 1 && call == soak_.ends_after); ++call) {
      if (call % 16 == 0) late = random.between(0, soak_.node.ranks - 1);
      const auto which = std::size_t(random.between(0, int(operands_.size()) - 1));
      if (rank_ == late && delays_.between(0, 3) == 0) sleep(delays_.log_between(1, 4000));
      run_call(which);
    }
  }
  /// Of all products, D's bytes.
  const std::vector<std::vector<char>>& first() const { return first_; }

 private:
  static void sleep(int us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }

  void run_call(std::size_t which) {
    NodeOperands& operands = *operands_[which];
    const std::size_t product = which / std::size_t(soak_.operand_sets);
    const Stream stream = delays_.pick(streams_);
    backend_.fill(operands.d.memory, 0xff, operands.d.host.size());
    overlapped_.gemm(products_[product], soak_.node.problem, operands.operands(), stream);
    backend_.synchronize(stream);
    check_report(overlapped_, rank_);
    if (first_[which].empty()) {
      const std::string wrong = operands.violation(soak_.node.fractions ? 0.05 : 0);
      if (!wrong.empty()) throw std::runtime_error(wrong);
      first_[which] = operands.d.host;
      return;
    }
    operands.d.fetch();
    if (operands.d.host != first_[which])
      throw std::runtime_error("rank " + std::to_string(rank_) + ": other bits than at first of " +
                               std::string(to_string(nodes_[product].exchange)));
  }

  const Soak& soak_;
  int rank_;
  Context context_;
  Backend& backend_;
  Overlapped overlapped_;
  Random delays_;
  std::vector<Stream> streams_;
  std::vector<NodeCase> nodes_;
  std::vector<Overlapped::Prepared> products_;
  std::vector<std::unique_ptr<NodeOperands>> operands_;
  std::vector<std::vector<char>> first_;
};

/// What each rank got of each product. Throws what is wrong.
std::vector<std::vector<std::vector<char>>> run(const Soak& soak) {
  Ranks ranks(soak.node.ranks);
  std::vector<std::vector<std::vector<char>>> first(std::size_t(soak.node.ranks));
  ranks.run([&](int rank) {
    SoakRank its(soak, rank, ranks);
    ranks.run_until_all_end(rank, its);
    first[std::size_t(rank)] = its.first();
  });
  return first;
}

/// Shards of two tiles by two, ragged: rows that are no multiple of those that are taken to another rank at once.
Soak small_soak(int ranks, std::uint64_t seed, int calls, bool ping_pong = false) {
  Soak soak{.node = {.problem = bf16_problem(ranks * 70, 72, 24), .ranks = ranks, .seed = seed}, .calls = calls};
  KernelConfig config = ping_pong ? tile(64, 64, 8, true) : tile(64, 64, 4);
  config.grid = 2;
  soak.node.config = config;
  return soak;
}

Soak fractions(Soak soak) {
  soak.node.problem.a.type = soak.node.problem.b.type = soak.node.problem.d.type = f16;
  soak.node.fractions = true;
  return soak;
}

int calls_from_environment(int otherwise) {
  const char* const text = std::getenv("JITGEMM_TEST_CALLS");
  return text ? std::atoi(text) : otherwise;
}

}  // namespace

TEST_CASE("Calls of ranks of which one is late give the same bits each time", "[parallel][soak]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  const int ranks = GENERATE(2, 3);
  const bool one_buffer = GENERATE(false, true);
  CAPTURE(ranks, one_buffer);
  Soak soak = small_soak(ranks, test_seed() % 10'000 + 2, 80);
  soak.one_buffer = one_buffer;
  REQUIRE_NOTHROW(run(soak));
}

TEST_CASE("Sums of fractions have the same bits whatever the order in which ranks come", "[parallel][soak]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  const auto in_order = run(fractions(small_soak(4, 0, 12)));
  for (std::uint64_t seed = test_seed() % 10'000 + 1, last = seed + 3; seed <= last; ++seed) {
    CAPTURE(seed);
    const auto again = run(fractions(small_soak(4, seed, 12)));
    for (std::size_t rank = 0; rank < 4; ++rank)
      for (std::size_t product = 0; product < again[rank].size(); ++product)
        if (!again[rank][product].empty() && !in_order[rank][product].empty())
          REQUIRE(again[rank][product] == in_order[rank][product]);
  }
}

TEST_CASE("A rank that ends is named by those that wait for it, in time", "[parallel][soak]") {
  Soak soak = small_soak(3, 4, 20);
  soak.ends_after = 5;
  soak.node.timeout_seconds = 0.5;
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE_THROWS_WITH(run(soak), Catch::Matchers::ContainsSubstring("rank 0 waited in vain for rank 2 in call 6"));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
}

/// JITGEMM_TEST_CALLS=100000 build/release/bin/tests "Overlapped products soak": minutes.
TEST_CASE("Overlapped products soak", "[.][full][parallel][soak]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  const int calls = calls_from_environment(2000), part = 1000;
  for (int done = 0; done < calls; done += part) {
    Soak soak = small_soak(2 + done / part % 3, test_seed() + std::uint64_t(done), std::min(part, calls - done),
                           done / part % 2 != 0);
    soak.one_buffer = done / part % 4 >= 2;
    if (done / part % 5 == 4) soak = fractions(soak);
    CAPTURE(done, soak.node.seed);
    REQUIRE_NOTHROW(run(soak));
    std::cout << done + soak.calls << " calls of each of " << soak.node.ranks << " ranks" << std::endl;
  }
}

/// For tools/removal.py, as what a kernel waits for in vain ends it in time.
TEST_CASE("Overlapped calls without a pause between are right in many orders", "[.][full][removal][parallel]") {
  for (std::uint64_t seed = 1; seed < 37; ++seed) {  // an emulated device's launches all have one order of warps
    Soak soak = small_soak(3, seed, 8, seed % 5 < 2);
    soak.node.timeout_seconds = 2;
    soak.one_buffer = seed % 4 < 2;
    try {
      run(soak);
    } catch (const std::exception& error) {
      std::cout << "caught with seed " << seed << ": " << error.what() << std::endl;
      FAIL();
    }
  }
}

/// What is read behind received rows and columns is no memory of the call's; AddressSanitizer sees it.
TEST_CASE("Sums of a shard that is much smaller than a tile are read where they are", "[.][full][removal][parallel]") {
  Soak soak = small_soak(2, 1, 6);
  soak.node.problem.m = 2;
  soak.node.problem.n = 8;
  soak.node.problem.d.type = f32;
  soak.node.config = tile(64, 256, 4);
  soak.node.config->grid = 2;
  soak.node.timeout_seconds = 2;
  try {
    run(soak);
  } catch (const std::exception& error) {
    std::cout << "caught with seed 1: " << error.what() << std::endl;
    FAIL();
  }
}

TEST_CASE("Those that wait for a lost rank say so in every order", "[.][full][removal][parallel]") {
  for (std::uint64_t seed = 1; seed < 4; ++seed) {
    Soak soak = small_soak(3, seed, 6);
    soak.ends_after = 3;
    soak.node.timeout_seconds = 0.3;
    try {
      run(soak);
    } catch (const std::exception& error) {
      if (std::string(error.what()) == "rank 0 waited in vain for rank 2 in call 4") continue;
      std::cout << "caught with seed " << seed << ": " << error.what() << std::endl;
      FAIL();
    }
    std::cout << "caught with seed " << seed << ": nobody missed the rank" << std::endl;
    FAIL();
  }
}

}  // namespace jitgemm::test
