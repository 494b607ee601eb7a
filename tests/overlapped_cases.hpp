#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "jitgemm/kernel_config.hpp"
#include "parallel/overlapped.hpp"
#include "random.hpp"
#include "reference.hpp"

// Products of the ranks of a node on emulated devices, by Overlapped itself.
namespace jitgemm::test {

/// One product of all ranks, small integers, so that every order of additions gives the same.
struct NodeCase {
  Problem problem;  ///< of each rank
  Exchange exchange = Exchange::all_gather_a;
  int ranks = 2;
  std::uint64_t seed = 0;  ///< of the emulator
  int calls = 3;
  std::optional<KernelConfig> config = {};
  double timeout_seconds = 60;
  bool fractions = false;  ///< instead of whole numbers
};

inline Problem bf16_problem(std::int64_t m, std::int64_t n, std::int64_t k) {
  Problem problem{.m = m, .n = n, .k = k};
  problem.a.type = problem.b.type = problem.d.type = bf16;
  problem.b.layout = Layout::column_major;
  return problem;
}

inline KernelConfig tile(int block_m, int block_n, int warps, bool ping_pong = false) {
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
inline double element(const NodeCase& node, int operand, int call, int rank, std::int64_t i, std::int64_t j) {
  std::uint64_t seed = std::uint64_t(operand);
  for (const std::uint64_t part : {std::uint64_t(call), std::uint64_t(rank), std::uint64_t(i), std::uint64_t(j)})
    seed = Random(seed * 1000003 + part).next();
  return node.fractions ? double(seed % 2047) / 1024 - 1 : double(seed % 3) - 1;
}

/// D's element (i, j) of a rank, as float64 has it: i counts the rows that it gets.
inline double expected(const NodeCase& node, int call, int rank, std::int64_t i, std::int64_t j) {
  const Problem& p = node.problem;
  const bool gathers = node.exchange == Exchange::all_gather_a;
  const std::int64_t row = gathers ? i : rank * (p.m / node.ranks) + i;
  double sum = 0;
  for (int other = gathers ? rank : 0; other < (gathers ? rank + 1 : node.ranks); ++other)
    for (std::int64_t l = 0; l < p.k; ++l)
      sum += element(node, 0, call, gathers ? 0 : other, row, l) * element(node, 1, call, other, l, j);
  double x = p.alpha * sum;
  if (p.beta != 0) x += p.beta * element(node, 2, call, rank, i, j);
  if (p.epilogue.bias == Bias::along_n) x += element(node, 3, call, gathers ? rank : 0, 0, j);
  if (p.epilogue.activation == Activation::relu) x = std::max(x, 0.0);
  return x;
}

/// What a rank multiplies in a call, and what it gets.
struct NodeOperands {
  NodeOperands(const NodeCase& its_node, int its_call, int its_rank, Backend& backend)
      : node(its_node),
        call(its_call),
        rank(its_rank),
        a(backend, rows_a(), p().k, ld_or(p().a, p().k), p().a.type),
        b(backend, transposed() ? p().n : p().k, columns_b(), ld_or(p().b, columns_b()), p().b.type),
        c(backend, rows_d(), p().n, ld_or(p().c, p().n), p().d.type),
        bias(backend, 1, p().n, p().n, p().d.type),
        d(backend, rows_d(), p().n, ld_or(p().d, p().n), p().d.type) {
    const std::int64_t first = gathers() ? rank * rows_a() : 0;
    a.set([&](auto i, auto j) { return element(node, 0, call, gathers() ? 0 : rank, first + i, j); });
    b.set([&](auto i, auto j) { return element(node, 1, call, rank, transposed() ? j : i, transposed() ? i : j); });
    c.set([&](auto i, auto j) { return element(node, 2, call, rank, i, j); });
    bias.set([&](auto, auto j) { return element(node, 3, call, gathers() ? rank : 0, 0, j); });
  }

  Operands operands() const {
    Operands operands{.a = a.memory, .b = b.memory, .d = d.memory};
    if (p().beta != 0) operands.c = c.memory;
    if (p().epilogue.bias != Bias::none) operands.bias = bias.memory;
    return operands;
  }
  /// Empty, or the first element of D, which is fetched, that is off by more than `relative`.
  std::string violation(double relative = 0) {
    d.fetch();
    for (std::int64_t i = 0; i < rows_d(); ++i)
      for (std::int64_t j = 0; j < p().n; ++j)
        if (const double right = expected(node, call, rank, i, j), is = d.get(i, j);
            !(std::abs(is - right) <= relative * std::max(1.0, std::abs(right))))
          return "rank " + std::to_string(rank) + ", call " + std::to_string(call) + ": D[" + std::to_string(i) + ", " +
                 std::to_string(j) + "] is " + std::to_string(is) + ", not " + std::to_string(right);
    return {};
  }

  const Problem& p() const { return node.problem; }
  bool gathers() const { return node.exchange == Exchange::all_gather_a; }
  bool transposed() const { return p().b.layout == Layout::column_major; }
  std::int64_t rows_a() const { return gathers() ? p().m / node.ranks : p().m; }
  std::int64_t rows_d() const { return gathers() ? p().m : p().m / node.ranks; }
  std::int64_t columns_b() const { return transposed() ? p().k : p().n; }
  static std::int64_t ld_or(const Matrix& matrix, std::int64_t packed) { return matrix.ld != 0 ? matrix.ld : packed; }

  const NodeCase& node;
  int call, rank;
  DeviceMatrix a, b, c, bias, d;
};

/// Throws if a kernel of the rank has waited in vain.
inline void check_report(const Overlapped& overlapped, int rank) {
  const auto report = overlapped.report();
  if (report.state != device::Patience::well)
    throw std::runtime_error("rank " + std::to_string(rank) + " waited in vain for rank " +
                             std::to_string(report.rank) + " in call " + std::to_string(report.epoch));
}

}  // namespace jitgemm::test
