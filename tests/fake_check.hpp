#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/kernel_interface.hpp"
#include "reference.hpp"

namespace jitgemm::test {

/// What the checking kernel does, for devices whose kernels are the test's own: of f16 operands, alpha 1 and no
/// epilogue.
class FakeCheck {
 public:
  FakeCheck(const device::CheckArguments& arguments, DataType d) : x_(arguments), d_type_(d) {}

  void run(int blocks) const {
    using device::CheckTask;
    if (x_.task == CheckTask::recompute || x_.task == CheckTask::read) {
      const int count = x_.task == CheckTask::read ? x_.element_count : blocks;
      for (int i = 0; i < count; ++i) {
        if (x_.task == CheckTask::recompute) recompute(x_.elements[i]);
        read(x_.elements[i]);
      }
      return;
    }
    for (int i = 0; i < blocks; ++i) x_.task == CheckTask::scan ? scan(x_.chunks[i]) : keep(x_.chunks[i]);
  }

 private:
  std::int64_t in_d(std::int64_t row, std::int64_t column) const {
    return row / x_.m * x_.stride_d + row % x_.m * x_.row_d + column;
  }
  double d(std::int64_t row, std::int64_t column) const { return load(x_.d, in_d(row, column), d_type_); }
  double accepted(std::int64_t row, std::int64_t column) const {
    return load(x_.accepted, row * x_.n + column, d_type_);
  }
  bool is_poison(std::int64_t row, std::int64_t column) const {
    const auto size = std::int64_t(size_of(d_type_));
    const auto* const bytes = static_cast<const unsigned char*>(x_.d) + in_d(row, column) * size;
    for (std::int64_t i = 0; i < size; ++i)
      if (bytes[i] != device::POISON) return false;
    return true;
  }

  void recompute(device::CheckedElement& element) const {
    double sum = 0, products = 0;
    for (int i = 0; i < x_.k; ++i) {
      const double product = load(x_.a, element.batch * x_.stride_a + element.row * x_.row_a + i * x_.k_a, f16) *
                             load(x_.b, element.batch * x_.stride_b + element.column * x_.column_b + i * x_.k_b, f16);
      sum += product;
      products += std::abs(product);
    }
    element.products = products;
    element.linear = element.value = sum;
    element.addends = 0;
    element.scale = 1;
  }
  void read(device::CheckedElement& element) const {
    const std::int64_t row = std::int64_t(element.batch) * x_.m + element.row;
    element.d = d(row, element.column);
    if (x_.accepted) element.accepted = accepted(row, element.column);
  }

  void scan(device::CheckedChunk& chunk) const {
    chunk.found = 0;
    chunk.first = chunk.written_outside = device::NOTHING_FOUND;
    for (std::int64_t i = chunk.end - 1; i >= chunk.begin; --i) {
      const std::int64_t row = i / x_.width, column = i % x_.width;
      if (column >= x_.n) {
        if (!is_poison(row, column)) chunk.written_outside = i;
      } else if (x_.accepted ? differ(d(row, column), accepted(row, column)) : is_poison(row, column)) {
        ++chunk.found;
        chunk.first = i;
      }
    }
  }
  bool differ(double x, double y) const {
    if (x == y || (std::isnan(x) && std::isnan(y))) return false;
    return !(std::abs(x - y) <= x_.absolute + x_.relative * std::min(std::abs(x), std::abs(y)));
  }
  void keep(const device::CheckedChunk& chunk) const {
    for (std::int64_t i = chunk.begin; i < chunk.end; ++i) {
      const std::int64_t row = i / x_.width, column = i % x_.width;
      if (column < x_.n) store(d(row, column), x_.accepted, row * x_.n + column, d_type_);
    }
  }

  device::CheckArguments x_;
  DataType d_type_;
};

}  // namespace jitgemm::test
