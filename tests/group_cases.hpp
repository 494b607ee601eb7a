#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/groups.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "gated_cases.hpp"
#include "gemm_cases.hpp"
#include "group_memory.hpp"
#include "jitgemm/jitgemm.hpp"
#include "random.hpp"
#include "reference.hpp"

// Calls with groups of rows. Operands end where their memory does, rows of A that are no group's are NaN, and all of D
// that no group has is to stay as it was.
namespace jitgemm::test::groups {

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

/// As experts' weights have them: `sizes` rows of A each.
inline Problem problem_of(std::int64_t n, std::int64_t k, const std::vector<std::int32_t>& sizes, Layout layout_b,
                          DataType type = bf16, DataType d = bf16) {
  Problem problem{.m = std::accumulate(sizes.begin(), sizes.end(), std::int64_t(0)),
                  .n = n,
                  .k = k,
                  .batch = std::int64_t(sizes.size()),
                  .a = {type},
                  .b = {type, layout_b},
                  .d = {d}};
  problem.grouping = Grouping::offsets;
  return problem;
}

/// Tables of five groups that no routing has: backwards, negative, past the last of some 130 rows. None begins a group
/// where one would be aligned.
inline const std::vector<std::vector<std::int32_t>> broken_tables{{90, 40, 121, 20, 70},
                                                                  {-5, 31, -2147483647 - 1, 62, 93},
                                                                  {11, 200, 50, 2147483647, 130},
                                                                  {-1, -1, -1, -1, -1},
                                                                  {2147483647, 0, 2147483647, 0, 2147483647}};

struct Case {
  Problem problem;
  std::vector<std::int32_t> table;
  const KernelConfig* config = nullptr;  // null: what is chosen
  int pad = 0;                           // elements between rows
  bool compares_with_dense = true;
  std::array<float, 3> scales{};  // single ones of A, B and D; 0: none
  /// Of A's or B's scales of blocks, one that is another number to the reference than to the call.
  std::int64_t missed_a = -1, missed_b = -1;
  /// With pointers to B: groups whose B is zeros to the reference, and whose pointer is none, null or misaligned in
  /// turn.
  std::vector<std::int64_t> without_b = {};
};

/// The same groups by counts, in matrices of some rows more than the largest has.
inline Case with_counts(Case one, const std::vector<std::int32_t>& sizes, int spare) {
  one.problem.grouping = Grouping::counts;
  one.problem.m = *std::max_element(sizes.begin(), sizes.end()) + spare;
  one.table = sizes;
  return one;
}

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

/// Each group's B in memory of its own, which ends where that does, and a table of pointers to them.
class ApartB {
 public:
  /// `together`: all groups' matrices of so many elements, one behind the other.
  ApartB(TestDevice& device, const NormalProblem& p, const TestDevice::Buffer& together, std::int64_t stride,
         std::int64_t elements, const std::vector<std::int64_t>& without)
      : table_(device.buffer(p.batch, f64, 0, nullptr, 8)) {
    const std::size_t size = size_of(p.b.type);
    for (std::int64_t g = 0; g < p.batch; ++g) {
      matrices_.push_back(device.buffer(elements, p.b.type, 0, nullptr, p.b.alignment));
      std::memcpy(matrices_.back().host(), together.host() + std::size_t(g * stride) * size,
                  std::size_t(elements) * size);
      auto pointer = reinterpret_cast<std::uintptr_t>(matrices_.back().to_device());
      if (const auto found = std::find(without.begin(), without.end(), g); found != without.end())
        pointer = (found - without.begin()) % 2 == 0 ? 0 : pointer + std::uintptr_t(p.b.alignment) / 2;
      std::memcpy(table_.host() + std::size_t(g) * sizeof pointer, &pointer, sizeof pointer);
    }
  }
  const void* on_device() const { return table_.to_device(); }

 private:
  TestDevice::Buffer table_;
  std::vector<TestDevice::Buffer> matrices_;
};

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
  for (const std::int64_t g : one.without_b)
    std::memset(b.host() + std::size_t(g * rows_b * p.b.ld) * size_of(p.b.type), 0,
                std::size_t(span(rows_b, p.b.ld, n_major ? n : k)) * size_of(p.b.type));
  const auto c = random_matrix(p.beta != 0 ? span(m * of_rows, p.c.ld, n) : 0, p.c.type);
  const auto bias = random_matrix(p.epilogue.bias == Bias::none      ? 0
                                  : p.epilogue.bias == Bias::along_n ? n
                                                                     : m,
                                  p.c.type);
  GroupsOfD d(device, p);
  const auto table = table_of(device, one.table);
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
  on_device.d = d.on_device();
  on_host.d = d.on_host();
  place(scale_a, on_device.scale_a, on_host.scale_a, p.a.scaling != Scaling::value || one.scales[0] != 0);
  place(scale_b, on_device.scale_b, on_host.scale_b, p.b.scaling != Scaling::value || one.scales[1] != 0);
  place(scale_d, on_device.scale_d, on_host.scale_d, one.scales[2] != 0);
  on_device.group_rows = groups::on_device(table);

  std::optional<ApartB> apart;
  Operands of_call = on_device;
  if (has_pointers_to_b(p)) {
    apart.emplace(device, p, b, rows_b * p.b.ld, span(rows_b, p.b.ld, n_major ? n : k), one.without_b);
    of_call.b = apart->on_device();
  }
  if (one.config)
    device.context.gemm(asked, of_call, nullptr, *one.config);
  else
    device.context.gemm(asked, of_call, nullptr);
  device.wait();
  d.from_device();
  const KernelConfig config = one.config ? *one.config : device.context.plan(asked).config;
  for (const auto& [buffer, missed] : {std::pair{&scale_a, one.missed_a}, {&scale_b, one.missed_b}})
    if (missed >= 0) store(1.5 * load(buffer->host(), missed, f32), buffer->host(), missed, f32);

  // Each group's rows against the reference and the GEMM of it alone; then what is nobody's.
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto [begin, end] = rows[std::size_t(g)];
    if (begin == end || n == 0) continue;
    const std::string name =
        "group " + std::to_string(g) + ", rows " + std::to_string(begin) + " to " + std::to_string(end) + ": ";
    Problem single = asked;
    single.grouping = Grouping::none;
    single.expected_m = 0;
    single.b.batch_mode = BatchMode::strided;
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
    const RowsOfD rows_of_d{row * p.d.ld, end - begin};
    d.has(rows_of_d);
    if (!one.compares_with_dense) continue;
    Operands dense = of_group(on_device);
    if (of_blocks) dense.scale_a = reinterpret_cast<const float*>(scales_alone.to_device());
    if (const std::string wrong = d.compare_with_alone(single, dense, rows_of_d, config); !wrong.empty())
      return name + wrong;
  }
  return d.stray_write();
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

/// Runs such functions of a device and random numbers, which the test's seed draws.
template <typename... Cases>
void run_all_on(const ContextOptions& options, const Cases&... cases) {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  TestDevice device(options);
  (cases(device, random), ...);
}

/// Why there is no Hopper GPU; empty if there is one.
inline std::string why_no_hopper() {
  if (cuda_devices().empty()) return "no CUDA device";
  const std::string architecture = Context(GemmDevice::cuda()).device().architecture;
  return architecture == "sm_90a" ? "" : "these configurations are Hopper's, and this GPU is " + architecture;
}

/// run_all_on a Hopper GPU, or else skips the test. Most of the time is NVRTC's, so few cases a test: ctest runs tests
/// side by side.
template <typename... Cases>
void run_all_on_gpu(const Cases&... cases) {
  if (const std::string why = why_no_hopper(); !why.empty()) SKIP(why);
  run_all_on(GemmDevice::cuda(), cases...);
}

}  // namespace jitgemm::test::groups
