#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "context_internals.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "gated_cases.hpp"
#include "jitgemm/jitgemm.hpp"
#include "random.hpp"

// The memory of calls with groups: D, of which only what groups have may be written, and tables on the device.
namespace jitgemm::test::groups {

using gated::TestDevice;

inline TestDevice::Buffer table_of(TestDevice& device, const std::vector<std::int32_t>& values) {
  auto buffer = device.buffer(std::int64_t(values.size()), s32, 0, nullptr, 4);
  if (!values.empty()) std::memcpy(buffer.host(), values.data(), values.size() * sizeof values[0]);
  return buffer;
}
inline const std::int32_t* on_device(const TestDevice::Buffer& table) {
  return reinterpret_cast<const std::int32_t*>(table.to_device());
}

/// The rows of D that a group has, as the dense GEMM of it alone writes them.
struct RowsOfD {
  std::int64_t first;  // element
  std::int64_t count;
};

/// D behind bytes that nothing may write, and another D for GEMMs of a group alone. Full of NaN.
class GroupsOfD {
 public:
  GroupsOfD(TestDevice& device, const NormalProblem& p)
      : device_(device),
        p_(p),
        size_(std::int64_t(size_of(p.d.type))),
        together_(memory()),
        alone_(memory()),
        untouched_(std::size_t(guard + matrix_d(p).batch_bytes()), 1) {}

  void* on_device() const { return together_.to_device() + guard; }
  void* on_host() const { return together_.host() + guard; }
  void from_device() const { together_.from_device(); }

  /// That these rows are a group's.
  void has(const RowsOfD& rows) {
    for (std::int64_t i = 0; i < rows.count; ++i)
      std::memset(untouched_.data() + place(rows, i), 0, std::size_t(p_.n * size_));
  }

  /// Runs the GEMM of a group alone. Empty, or which row of D has other bits.
  std::string compare_with_alone(const Problem& single, Operands operands, const RowsOfD& rows,
                                 const KernelConfig& config) {
    operands.d = alone_.to_device() + guard + rows.first * size_;
    device_.context.gemm(single, operands, nullptr, config);
    device_.wait();
    alone_.from_device();
    for (std::int64_t i = 0; i < rows.count; ++i)
      if (std::memcmp(together_.host() + place(rows, i), alone_.host() + place(rows, i), std::size_t(p_.n * size_)) !=
          0)
        return "row " + std::to_string(i) + " has other bits than in a GEMM of the group alone";
    return "";
  }

  /// Empty, or what was written that no group has.
  std::string stray_write() const {
    for (std::size_t i = 0; i < untouched_.size(); ++i)
      if (untouched_[i] && together_.host()[i] != char(0xff))
        return "byte " + std::to_string(std::int64_t(i) - guard) + " of D, which is no group's, was written";
    return "";
  }

 private:
  static constexpr std::int64_t guard = 256;  // bytes before D

  TestDevice::Buffer memory() const {
    return device_.buffer((guard + matrix_d(p_).batch_bytes()) / size_, p_.d.type, 0xff, nullptr, guard);
  }
  std::size_t place(const RowsOfD& rows, std::int64_t i) const {
    return std::size_t(guard + (rows.first + i * p_.d.ld) * size_);
  }

  TestDevice& device_;
  const NormalProblem& p_;
  std::int64_t size_;
  TestDevice::Buffer together_, alone_;
  std::vector<char> untouched_;
};

/// A call on the emulator that is recorded once, as a graph has it, and replayed with other tables. Of small integers,
/// whose sums are exact.
class RecordedGroups {
 public:
  RecordedGroups(TestDevice& device, const Problem& problem, Random& random)
      : a(device.buffer(matrix_a(normalise(problem)).batch_span(), problem.a.type, 0, &random)),
        b(device.buffer(matrix_b(normalise(problem)).batch_span(), problem.b.type, 0, &random)),
        d(device.buffer(matrix_d(normalise(problem)).batch_span(), problem.d.type, 0xff, nullptr)),
        table_(table_of(device, std::vector<std::int32_t>(std::size_t(problem.batch)))),
        d_bytes_(std::size_t(matrix_d(normalise(problem)).batch_bytes())) {
    Operands operands{.a = a.host(), .b = b.host(), .d = d.host()};
    operands.group_rows = on_device(table_);
    recording_ = ContextInternals::backend(device.context).record([&device, problem, operands](Stream stream) {
      device.context.gemm(problem, operands, stream);
    });
  }

  /// Into a D full of NaN.
  void replay(const std::vector<std::int32_t>& ends) {
    std::memcpy(table_.host(), ends.data(), ends.size() * sizeof ends[0]);
    std::memset(d.host(), 0xff, d_bytes_);
    recording_->replay(nullptr);
  }

  TestDevice::Buffer a, b, d;

 private:
  TestDevice::Buffer table_;
  std::size_t d_bytes_;
  std::unique_ptr<Recording> recording_;
};

}  // namespace jitgemm::test::groups
