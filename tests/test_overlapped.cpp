// Products under which the ranks of a node exchange what they need, on emulated devices.
#include <cmath>
#include <iostream>
#include <limits>
#include <optional>

#include "catch.hpp"
#include "gemm_cases.hpp"
#include "jitgemm/error.hpp"
#include "parallel/overlapped.hpp"
#include "parallel/sharded_problem.hpp"
#include "random.hpp"
#include "ranks.hpp"

namespace jitgemm::test {
namespace {

/// One product of all ranks, small integers, so that every order of additions gives the same.
struct NodeCase {
  Problem problem;  ///< of each rank
  Exchange exchange = Exchange::all_gather_a;
  int ranks = 2;
  std::uint64_t seed = 0;  ///< of the emulator
  int calls = 3;
  std::optional<KernelConfig> config = {};
  bool other_streams = false;  ///< each call on another one
  double timeout_seconds = 60;
};

Problem bf16_problem(std::int64_t m, std::int64_t n, std::int64_t k) {
  Problem problem{.m = m, .n = n, .k = k};
  problem.a.type = problem.b.type = problem.d.type = bf16;
  problem.b.layout = Layout::column_major;
  return problem;
}

KernelConfig tile(int block_m, int block_n, int warps, bool ping_pong = false) {
  KernelConfig config;
  config.main_loop = MainLoop::sm90;
  config.schedule = Schedule::persistent;
  config.block_m = block_m;
  config.block_n = block_n;
  config.block_k = 64;
  config.warps = warps;
  config.stages = 3;
  config.ping_pong = ping_pong;
  config.grid = 3;
  return config;
}

/// A matrix of one call, on the host and in a device's memory, with NaN between its rows.
struct DeviceMatrix {
  DeviceMatrix(Backend& its_backend, std::int64_t its_rows, std::int64_t its_columns, std::int64_t its_ld,
               DataType its_type)
      : backend(its_backend), rows(its_rows), columns(its_columns), ld(its_ld), type(its_type) {
    host.assign(std::size_t(rows * ld) * size_of(type), char(0xff));
    memory = backend.allocate(host.size());
    backend.copy_to_device(memory, host.data(), host.size());
  }
  ~DeviceMatrix() { backend.release(memory); }
  DeviceMatrix(const DeviceMatrix&) = delete;
  DeviceMatrix& operator=(const DeviceMatrix&) = delete;

  template <typename Value>
  void set(const Value& value) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) store(value(i, j), host.data(), i * ld + j, type);
    backend.copy_to_device(memory, host.data(), host.size());
  }
  void fetch() { backend.copy_to_host(host.data(), memory, host.size()); }
  double get(std::int64_t i, std::int64_t j) const { return load(host.data(), i * ld + j, type); }

  Backend& backend;
  std::int64_t rows, columns, ld;
  DataType type;
  std::vector<char> host;
  void* memory;
};

/// An element of an operand of a call.
double element(int operand, int call, int rank, std::int64_t i, std::int64_t j) {
  std::uint64_t seed = std::uint64_t(operand);
  for (const std::uint64_t part : {std::uint64_t(call), std::uint64_t(rank), std::uint64_t(i), std::uint64_t(j)})
    seed = Random(seed * 1000003 + part).next();
  return double(seed % 3) - 1;
}

/// D's element (i, j) of a rank, as float64 has it: i counts the rows that it gets.
double expected(const NodeCase& node, int call, int rank, std::int64_t i, std::int64_t j) {
  const Problem& p = node.problem;
  const bool gathers = node.exchange == Exchange::all_gather_a;
  const std::int64_t row = gathers ? i : rank * (p.m / node.ranks) + i;
  double sum = 0;
  for (int other = gathers ? rank : 0; other < (gathers ? rank + 1 : node.ranks); ++other)
    for (std::int64_t l = 0; l < p.k; ++l)
      sum += element(0, call, gathers ? 0 : other, row, l) * element(1, call, other, l, j);
  double x = p.alpha * sum;
  if (p.beta != 0) x += p.beta * element(2, call, rank, i, j);
  if (p.epilogue.bias == Bias::along_n) x += element(3, call, gathers ? rank : 0, 0, j);
  if (p.epilogue.activation == Activation::relu) x = std::max(x, 0.0);
  return x;
}

void run_call(const NodeCase& node, int call, int rank, Ranks& ranks, Overlapped& overlapped,
              const Overlapped::Prepared& prepared, Backend& backend, Stream stream) {
  const Problem& p = node.problem;
  const bool gathers = node.exchange == Exchange::all_gather_a;
  const std::int64_t shard = p.m / node.ranks, rows_a = gathers ? shard : p.m, rows_d = gathers ? p.m : shard;
  const bool transposed = p.b.layout == Layout::column_major;
  const auto ld = [](const Matrix& matrix, std::int64_t packed) { return matrix.ld != 0 ? matrix.ld : packed; };
  DeviceMatrix a(backend, rows_a, p.k, ld(p.a, p.k), p.a.type);
  DeviceMatrix b(backend, transposed ? p.n : p.k, transposed ? p.k : p.n, ld(p.b, transposed ? p.k : p.n), p.b.type);
  DeviceMatrix c(backend, rows_d, p.n, ld(p.c, p.n), p.d.type), bias(backend, 1, p.n, p.n, p.d.type);
  DeviceMatrix d(backend, rows_d, p.n, ld(p.d, p.n), p.d.type);
  const std::int64_t first = gathers ? rank * shard : 0;
  a.set([&](auto i, auto j) { return element(0, call, gathers ? 0 : rank, first + i, j); });
  b.set([&](auto i, auto j) { return element(1, call, rank, transposed ? j : i, transposed ? i : j); });
  c.set([&](auto i, auto j) { return element(2, call, rank, i, j); });
  bias.set([&](auto, auto j) { return element(3, call, gathers ? rank : 0, 0, j); });

  Operands operands{.a = a.memory, .b = b.memory, .d = d.memory};
  if (p.beta != 0) operands.c = c.memory;
  if (p.epilogue.bias != Bias::none) operands.bias = bias.memory;
  ranks.meet(rank);
  overlapped.gemm(prepared, p, operands, stream);
  backend.synchronize(stream);
  ranks.meet(rank);
  const auto report = overlapped.report();
  if (report.state != device::Patience::well)
    throw std::runtime_error("rank " + std::to_string(rank) + " waited in vain for rank " +
                             std::to_string(report.rank) + " in call " + std::to_string(report.epoch));
  d.fetch();
  for (std::int64_t i = 0; i < rows_d; ++i)
    for (std::int64_t j = 0; j < p.n; ++j)
      if (const double right = expected(node, call, rank, i, j); d.get(i, j) != right)
        throw std::runtime_error("rank " + std::to_string(rank) + ", call " + std::to_string(call) + ": D[" +
                                 std::to_string(i) + ", " + std::to_string(j) + "] is " + std::to_string(d.get(i, j)) +
                                 ", not " + std::to_string(right));
}

void run(const NodeCase& node) {
  Ranks ranks(node.ranks);
  ranks.run([&](int rank) {
    const ContextOptions options = GemmDevice::emulator(node.seed == 0 ? 0 : node.seed + std::uint64_t(rank));
    Context context(options);
    Backend& backend = ContextInternals::backend(context);
    Overlapped overlapped(context, rank, node.ranks, ranks.all_gather(rank), node.timeout_seconds);
    std::string why_not;
    const auto chosen = Overlapped::choose(context, node.ranks, node.problem, node.exchange, why_not);
    if (!chosen) throw std::runtime_error("not overlapped: " + why_not);
    auto prepared = overlapped.prepare(node.problem, node.exchange, node.config.value_or(chosen->config));
    overlapped.stage(prepared);
    Stream stream = backend.create_stream();
    for (int call = 0; call < node.calls; ++call) {
      if (node.other_streams) stream = backend.create_stream();
      run_call(node, call, rank, ranks, overlapped, prepared, backend, stream);
    }
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

/// For tools/removal.py: what a kernel waits for in vain ends it after two seconds.
TEST_CASE("Overlapped products are right in many orders", "[.][full][removal][parallel]") {
  for (std::uint64_t seed = 0; seed < 12; ++seed)
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
