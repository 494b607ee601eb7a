#pragma once

#include <cstdint>

#include "core/operand_matrix.hpp"

namespace jitgemm {

/// The bytes of memory that an operand occupies: some in each `pitch` from the first one on, or all up to the end.
class Occupied {
 public:
  Occupied() = default;
  Occupied(const void* pointer, std::int64_t bytes) : Occupied(pointer, bytes, 0, 0) {}
  /// `row_bytes` of each `pitch`; all bytes where that is 0.
  Occupied(const void* pointer, std::int64_t bytes, std::int64_t pitch, std::int64_t row_bytes);
  Occupied(const void* pointer, const OperandMatrix& matrix);

  std::uintptr_t begin() const { return begin_; }
  /// Rows of two slices of one array lie beside each other: their ranges do overlap, but they do not.
  bool overlaps(const Occupied& other) const;

 private:
  std::uintptr_t begin_ = 0, end_ = 0;
  std::uintptr_t pitch_ = 0, row_bytes_ = 0;  // 0: without gaps
};

}  // namespace jitgemm
