#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "gated_cases.hpp"
#include "jitgemm/jitgemm.hpp"
#include "random.hpp"
#include "reference.hpp"

// Calls with groups of rows. Operands end where their memory does, rows of A that are no group's are NaN, and all of D
// that no group has is to stay as it was.
namespace jitgemm::test::groups {

using gated::TestDevice;

struct GroupRows {
  std::int64_t begin, end;
};
/// The rows of each group, as Operands::group_rows documents any table: in all of A, or with counts in the group's own.
inline std::vector<GroupRows> rows_of(const Problem& problem, const std::vector<std::int32_t>& table) {
  std::vector<GroupRows> all;
  std::int64_t end = 0;
  for (const std::int32_t x : table) {
    const std::int64_t in_range = std::clamp<std::int64_t>(x, 0, problem.m);
    if (problem.grouping == Grouping::counts) {
      all.push_back({0, in_range});
    } else {
      all.push_back({end, std::max(end, in_range)});
      end = all.back().end;
    }
  }
  return all;
}

/// Ends of groups of these sizes.
inline std::vector<std::int32_t> ends_of(const std::vector<std::int32_t>& sizes) {
  std::vector<std::int32_t> ends;
  for (const std::int32_t size : sizes) ends.push_back((ends.empty() ? 0 : ends.back()) + size);
  return ends;
}

struct Case {
  Problem problem;
  std::vector<std::int32_t> table;
  const KernelConfig* config = nullptr;  // null: what is chosen
  int pad = 0;                           // elements between rows
  bool compares_with_dense = true;
  std::array<float, 3> scales{};  // single ones of A, B and D; 0: none
  /// Of A's or B's scales of blocks, one that is another number to the reference than to the call.
  std::int64_t missed_a = -1, missed_b = -1;
};

/// A's scales of 1x128, NaN but those of rows of groups.
inline TestDevice::Buffer block_scales(TestDevice& device, const NormalProblem& p, const std::vector<GroupRows>& rows,
                                       Random& random) {
  auto buffer = device.buffer(scales_of_a(p), f32, 0xff, nullptr);
  const std::int64_t ld = scale_ld(p.a.scaling, p.m, p.k);
  for (std::size_t g = 0; g < rows.size(); ++g)
    for (std::int64_t k = 0; k < (p.k + 127) / 128; ++k)
      for (std::int64_t row = rows[g].begin; row < rows[g].end; ++row)
        store(0.5 + random.uniform(), buffer.host(), std::int64_t(g) * scale_stride_a(p) + k * ld + row, f32);
  return buffer;
}

/// B's, of each group's own.
inline TestDevice::Buffer block_scales_of_b(TestDevice& device, const NormalProblem& p, Random& random) {
  const bool of_columns = p.b.scaling == Scaling::block_1x128;
  auto buffer = device.buffer(scales_of_b(p), f32, 0xff, nullptr, of_columns ? 16 : 4);
  const std::int64_t ld = scale_ld(p.b.scaling, p.n, p.k), k_blocks = (p.k + 127) / 128;
  for (std::int64_t g = 0; g < p.batch; ++g)
    for (std::int64_t k = 0; k < k_blocks; ++k)
      for (std::int64_t column = 0; column < p.n; column += of_columns ? 1 : 128)
        store(0.5 + random.uniform(), buffer.host(),
              g * scale_stride_b(p) + (of_columns ? k * ld + column : column / 128 * ld + k), f32);
  return buffer;
}

/// A's of a group, as a GEMM of it alone reads them.
inline TestDevice::Buffer block_scales_alone(TestDevice& device, const NormalProblem& p, const char* scales,
                                             std::int64_t group, std::int64_t begin, std::int64_t count) {
  const std::int64_t k_blocks = (p.k + 127) / 128, ld = scale_ld(p.a.scaling, p.m, p.k),
                     own_ld = scale_ld(p.a.scaling, count, p.k);
  auto buffer = device.buffer(count == 0 ? 0 : (k_blocks - 1) * own_ld + count, f32, 0xff, nullptr);
  for (std::int64_t k = 0; k < k_blocks; ++k)
    for (std::int64_t row = 0; row < count; ++row)
      store(load(scales, group * scale_stride_a(p) + k * ld + begin + row, f32), buffer.host(), k * own_ld + row, f32);
  return buffer;
}

/// Runs it, compares each group with the reference and, bit for bit, with a GEMM of it alone. Empty, or what is wrong.
inline std::string run(TestDevice& device, const Case& one, Random& random) {
  Problem asked = one.problem;
  const std::int64_t m = asked.m, n = asked.n, k = asked.k, groups = asked.batch;
  const bool by_counts = asked.grouping == Grouping::counts, n_major = asked.b.layout == Layout::row_major;
  asked.a.ld = k + one.pad;
  asked.b.ld = (n_major ? n : k) + one.pad;
  asked.d.ld = n + one.pad;
  if (asked.beta != 0) asked.c.ld = n + one.pad;
  const NormalProblem p = normalise(asked);
  const std::int64_t of_rows = by_counts ? groups : 1, rows_b = n_major ? k : n;
  const std::vector<GroupRows> rows = rows_of(asked, one.table);

  const auto random_matrix = [&](std::int64_t count, DataType type) {
    auto buffer = device.buffer(count, type, 0, nullptr);
    for (std::int64_t i = 0; i < count; ++i) store(2 * random.uniform() - 1, buffer.host(), i, type);
    return buffer;
  };
  const auto span = [](std::int64_t all_rows, std::int64_t ld, std::int64_t columns) {
    return all_rows == 0 || columns == 0 ? 0 : (all_rows - 1) * ld + columns;
  };
  // Only rows of groups have values.
  auto a = device.buffer(span(m * of_rows, p.a.ld, k), p.a.type, 0xff, nullptr);
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t row = rows[std::size_t(g)].begin; row < rows[std::size_t(g)].end; ++row)
      for (std::int64_t i = 0; i < k; ++i)
        store(2 * random.uniform() - 1, a.host(), (row + (by_counts ? g * m : 0)) * p.a.ld + i, p.a.type);
  const auto b = random_matrix(span(rows_b * groups, p.b.ld, n_major ? n : k), p.b.type);
  const auto c = random_matrix(p.beta != 0 ? span(m * of_rows, p.c.ld, n) : 0, p.c.type);
  const auto bias = random_matrix(p.epilogue.bias == Bias::none      ? 0
                                  : p.epilogue.bias == Bias::along_n ? n
                                                                     : m,
                                  p.c.type);
  constexpr std::int64_t guard = 256;  // bytes before D
  const std::size_t size_d = size_of(p.d.type), d_bytes = std::size_t(span(m * of_rows, p.d.ld, n)) * size_d;
  const auto d_memory = [&] {
    return device.buffer(std::int64_t(guard) / std::int64_t(size_d) + std::int64_t(d_bytes / size_d), p.d.type, 0xff,
                         nullptr, 256);
  };
  const auto d = d_memory(), d_alone = d_memory();
  auto table = device.buffer(groups, s32, 0, nullptr, 4);
  if (groups > 0) std::memcpy(table.host(), one.table.data(), std::size_t(groups) * 4);
  const auto scales_of = [&](Scaling scaling, float value, std::int64_t count) {
    auto buffer = device.buffer(scaling == Scaling::vector ? count : value != 0 ? 1 : 0, f32, 0, nullptr, 4);
    if (scaling == Scaling::vector)
      for (std::int64_t i = 0; i < count; ++i) store(0.5 + random.uniform(), buffer.host(), i, f32);
    else if (value != 0)
      store(value, buffer.host(), 0, f32);
    return buffer;
  };
  const bool of_blocks = has_block_scales(p);
  const auto scale_a =
      of_blocks ? block_scales(device, p, rows, random) : scales_of(p.a.scaling, one.scales[0], m * of_rows);
  const auto scale_b =
      of_blocks ? block_scales_of_b(device, p, random) : scales_of(p.b.scaling, one.scales[1], n * groups);
  const auto scale_d = scales_of(Scaling::value, one.scales[2], 1);

  Operands on_device, on_host;
  const auto place = [&](const TestDevice::Buffer& buffer, auto& device_pointer, auto& host_pointer,
                         bool there = true) {
    using Pointer = std::decay_t<decltype(device_pointer)>;
    device_pointer = there ? reinterpret_cast<Pointer>(buffer.to_device()) : nullptr;
    host_pointer = there ? reinterpret_cast<Pointer>(buffer.host()) : nullptr;
  };
  place(a, on_device.a, on_host.a);
  place(b, on_device.b, on_host.b);
  place(c, on_device.c, on_host.c);
  place(bias, on_device.bias, on_host.bias);
  place(d, on_device.d, on_host.d);
  place(scale_a, on_device.scale_a, on_host.scale_a, p.a.scaling != Scaling::value || one.scales[0] != 0);
  place(scale_b, on_device.scale_b, on_host.scale_b, p.b.scaling != Scaling::value || one.scales[1] != 0);
  place(scale_d, on_device.scale_d, on_host.scale_d, one.scales[2] != 0);
  on_device.d = static_cast<char*>(on_device.d) + guard;
  on_host.d = static_cast<char*>(on_host.d) + guard;
  on_device.group_rows = reinterpret_cast<const std::int32_t*>(table.to_device());

  if (one.config)
    device.context.gemm(asked, on_device, nullptr, *one.config);
  else
    device.context.gemm(asked, on_device, nullptr);
  device.wait();
  d.from_device();
  const KernelConfig config = one.config ? *one.config : device.context.plan(asked).config;
  for (const auto& [buffer, missed] : {std::pair{&scale_a, one.missed_a}, {&scale_b, one.missed_b}})
    if (missed >= 0) store(1.5 * load(buffer->host(), missed, f32), buffer->host(), missed, f32);

  // Each group's rows against the reference and the GEMM of it alone; then what is nobody's.
  std::vector<char> untouched(std::size_t(guard) + d_bytes, 1);
  char* const alone = d_alone.to_device() + guard;
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto [begin, end] = rows[std::size_t(g)];
    if (begin == end || n == 0) continue;
    const std::string name =
        "group " + std::to_string(g) + ", rows " + std::to_string(begin) + " to " + std::to_string(end) + ": ";
    Problem single = asked;
    single.grouping = Grouping::none;
    single.expected_m = 0;
    single.batch = 1;
    single.m = end - begin;
    const std::int64_t row = begin + (by_counts ? g * m : 0);
    const auto of_group = [&](Operands operands) {
      const auto at = [](auto& pointer, std::int64_t elements, DataType type) {
        if (pointer)
          pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(
              reinterpret_cast<std::uintptr_t>(pointer) + std::uintptr_t(elements * std::int64_t(size_of(type))));
      };
      at(operands.a, row * p.a.ld, p.a.type);
      at(operands.b, g * rows_b * p.b.ld, p.b.type);
      at(operands.c, row * p.c.ld, p.c.type);
      at(operands.d, row * p.d.ld, p.d.type);
      if (p.epilogue.bias == Bias::along_m) at(operands.bias, begin, p.c.type);
      if (p.a.scaling == Scaling::vector) at(operands.scale_a, row, f32);
      if (p.b.scaling == Scaling::vector) at(operands.scale_b, g * n, f32);
      if (of_blocks) at(operands.scale_b, g * scale_stride_b(p), f32);
      operands.group_rows = nullptr;
      return operands;
    };
    const auto of = [](float scale) { return scale == 0 ? 1 : double(scale); };
    const Scales scales{(p.a.scaling != Scaling::value ? 1 : of(one.scales[0])) *
                            (p.b.scaling != Scaling::value ? 1 : of(one.scales[1])),
                        of(one.scales[2])};
    const NormalProblem normal = normalise(single);
    const auto scales_alone = block_scales_alone(device, p, scale_a.host(), g, begin, of_blocks ? end - begin : 0);
    Operands host = of_group(on_host);
    if (of_blocks) host.scale_a = reinterpret_cast<const float*>(scales_alone.host());
    if (const std::string wrong = violation(reference(normal, host, config.main_loop, scales), normal, host.d);
        !wrong.empty())
      return name + wrong;
    const std::size_t first = std::size_t(guard) + std::size_t(row * p.d.ld) * size_d;
    for (std::int64_t i = 0; i < end - begin; ++i)
      std::memset(untouched.data() + first + std::size_t(i * p.d.ld) * size_d, 0, std::size_t(n) * size_d);
    if (!one.compares_with_dense) continue;
    Operands dense = of_group(on_device);
    if (of_blocks) dense.scale_a = reinterpret_cast<const float*>(scales_alone.to_device());
    dense.d = alone + row * p.d.ld * std::int64_t(size_d);
    device.context.gemm(single, dense, nullptr, config);
    device.wait();
    d_alone.from_device();
    for (std::int64_t i = 0; i < end - begin; ++i) {
      const std::size_t at = first + std::size_t(i * p.d.ld) * size_d;
      if (std::memcmp(d.host() + at, d_alone.host() + at, std::size_t(n) * size_d) != 0)
        return name + "row " + std::to_string(i) + " has other bits than in a GEMM of the group alone";
    }
  }
  for (std::size_t i = 0; i < untouched.size(); ++i)
    if (untouched[i] && d.host()[i] != char(0xff))
      return "byte " + std::to_string(std::int64_t(i) - guard) + " of D, which is no group's, was written";
  return "";
}

/// What is expected of a table: whether Context::check() says that it is broken.
inline bool says_broken(TestDevice& device) {
  try {
    device.context.check();
  } catch (const Error& error) {
    return error.code() == ErrorCode::invalid_operand;
  }
  return false;
}

}  // namespace jitgemm::test::groups
