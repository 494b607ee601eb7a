#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "group_cases.hpp"
#include "group_memory.hpp"
#include "jitgemm/jitgemm.hpp"
#include "random.hpp"
#include "reference.hpp"

// Calls with groups along k. Operands end where their memory does, what no group has of k is NaN, and what lies between
// the rows of D is to stay as it was.
namespace jitgemm::test::along_k {

using gated::TestDevice;
using groups::GroupRows;

inline constexpr Layout rows = Layout::row_major, columns = Layout::column_major;

/// As weights' gradients have them: A is dY, rows of k by M, and B is X, rows of k by N.
inline Problem problem_of(std::int64_t m, std::int64_t n, const std::vector<std::int32_t>& sizes, DataType type = bf16,
                          DataType d = f32, Layout layout_a = columns, Layout layout_b = rows) {
  Problem problem{.m = m,
                  .n = n,
                  .k = std::accumulate(sizes.begin(), sizes.end(), std::int64_t(0)),
                  .batch = std::int64_t(sizes.size()),
                  .a = {type, layout_a},
                  .b = {type, layout_b},
                  .d = {d}};
  problem.grouping = Grouping::along_k;
  return problem;
}

/// What each group has of k, as documented of any table.
inline std::vector<GroupRows> ranges_of(const Problem& problem, const std::vector<std::int32_t>& table) {
  Problem of_rows = problem;
  of_rows.grouping = Grouping::offsets;
  of_rows.m = problem.k;
  return groups::rows_of(of_rows, table);
}

struct KCase {
  Problem problem;
  std::vector<std::int32_t> table;
  const KernelConfig* config = nullptr;  // null: what is chosen
  int pad = 0;                           // elements between rows
  int nan_group = -1;                    // whose A and B are NaN, and its D alone may be
  int missed_group = -1;                 // whose last element of k is another one to the reference
};

/// Runs it, and compares each group's D with the reference and, where the group begins as a GEMM's operands may, bit
/// for bit with a GEMM of it alone. Empty, or what is wrong.
inline std::string run(TestDevice& device, const KCase& one, Random& random) {
  Problem asked = one.problem;
  const std::int64_t m = asked.m, n = asked.n, k = asked.k, groups = asked.batch;
  const bool a_by_k = asked.a.layout == columns, b_by_k = asked.b.layout == rows;  // a row for each of k
  asked.a.ld = (a_by_k ? m : k) + one.pad;
  asked.b.ld = (b_by_k ? n : k) + one.pad;
  asked.d.ld = n + one.pad;
  if (asked.beta != 0) asked.c.ld = n + one.pad;
  const NormalProblem p = normalise(asked);
  const std::vector<GroupRows> ranges = ranges_of(asked, one.table);

  // NaN is what no group has.
  const auto operand = [&](const OperandMatrix& matrix, bool by_k) {
    auto buffer = device.buffer(matrix.span(), matrix.type, 0xff, nullptr);
    for (std::int64_t g = 0; g < groups; ++g)
      for (std::int64_t i = ranges[std::size_t(g)].begin; i < ranges[std::size_t(g)].end && g != one.nan_group; ++i)
        for (std::int64_t j = 0; j < (by_k ? matrix.extent : matrix.vectors); ++j)
          store(2 * random.uniform() - 1, buffer.host(), by_k ? i * matrix.ld + j : j * matrix.ld + i, matrix.type);
    return buffer;
  };
  const auto random_vector = [&](std::int64_t count, DataType type) {
    auto buffer = device.buffer(count, type, 0, nullptr, int(size_of(type)));
    for (std::int64_t i = 0; i < count; ++i) store(2 * random.uniform() - 1, buffer.host(), i, type);
    return buffer;
  };
  const auto a = operand(matrix_a(p), a_by_k), b = operand(matrix_b(p), b_by_k);
  const auto c = random_vector(p.beta != 0 ? matrix_c(p).batch_span() : 0, p.c.type);
  const auto bias = random_vector(bias_elements(p), p.c.type);
  const auto scale_a = random_vector(p.a.scaling == Scaling::vector ? m : 0, f32),
             scale_b = random_vector(p.b.scaling == Scaling::vector ? n : 0, f32);
  groups::GroupsOfD d(device, p);
  const auto table = groups::table_of(device, one.table);

  Operands on_device{.a = a.to_device(), .b = b.to_device(), .d = d.on_device()};
  Operands on_host{.a = a.host(), .b = b.host(), .d = d.on_host()};
  if (p.beta != 0) on_device.c = c.to_device(), on_host.c = c.host();
  if (bias_elements(p) > 0) on_device.bias = bias.to_device(), on_host.bias = bias.host();
  const auto floats = [](const char* memory) { return reinterpret_cast<const float*>(memory); };
  if (p.a.scaling == Scaling::vector) {
    on_device.scale_a = floats(scale_a.to_device()), on_host.scale_a = floats(scale_a.host());
    on_device.scale_b = floats(scale_b.to_device()), on_host.scale_b = floats(scale_b.host());
  }
  on_device.group_rows = groups::on_device(table);
  if (one.config)
    device.context.gemm(asked, on_device, nullptr, *one.config);
  else
    device.context.gemm(asked, on_device, nullptr);
  device.wait();
  d.from_device();
  const KernelConfig config = one.config ? *one.config : device.context.plan(asked).config;
  if (one.missed_group >= 0) {
    const std::int64_t last = ranges[std::size_t(one.missed_group)].end - 1;
    for (std::int64_t row = 0; row < m; ++row) {
      const std::int64_t at = a_by_k ? last * p.a.ld + row : row * p.a.ld + last;
      store(0, a.host(), at, p.a.type);
    }
  }

  for (std::int64_t g = 0; g < groups; ++g) {
    const auto [begin, end] = ranges[std::size_t(g)];
    const std::string name =
        "group " + std::to_string(g) + ", " + std::to_string(begin) + " to " + std::to_string(end) + " of k: ";
    const groups::RowsOfD rows_of_d{g * p.d.stride, m};
    d.has(rows_of_d);
    Problem single = asked;
    single.grouping = Grouping::none;
    single.expected_m = 0;
    single.batch = 1;
    single.k = end - begin;
    const auto of_group = [&](Operands operands) {
      operands.a =
          static_cast<const char*>(operands.a) + begin * (a_by_k ? p.a.ld : 1) * std::int64_t(size_of(p.a.type));
      operands.b =
          static_cast<const char*>(operands.b) + begin * (b_by_k ? p.b.ld : 1) * std::int64_t(size_of(p.b.type));
      if (p.beta != 0)
        operands.c = static_cast<const char*>(operands.c) + g * p.c.stride * std::int64_t(size_of(p.c.type));
      operands.d = static_cast<char*>(operands.d) + g * p.d.stride * std::int64_t(size_of(p.d.type));
      operands.group_rows = nullptr;
      return operands;
    };
    const NormalProblem normal = normalise(single);
    const Operands host = of_group(on_host);
    if (g == one.nan_group) {
      for (std::int64_t i = 0; i < m * n; ++i) {
        const double x = load(host.d, i / n * p.d.ld + i % n, p.d.type);
        if (x == x) return name + "is not NaN, though its A and B are";
      }
      continue;
    }
    if (const std::string wrong = violation(reference(normal, host, config.main_loop), normal, host.d); !wrong.empty())
      return name + wrong;
    if (begin == end || !a_by_k || !b_by_k) continue;
    if (const std::string wrong = d.compare_with_alone(single, of_group(on_device), rows_of_d, config); !wrong.empty())
      return name + wrong;
  }
  return d.stray_write();
}

}  // namespace jitgemm::test::along_k
