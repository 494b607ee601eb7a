#include "core/occupied.hpp"

namespace jitgemm {

Occupied::Occupied(const void* pointer, std::int64_t bytes, std::int64_t pitch, std::int64_t row_bytes)
    : begin_(reinterpret_cast<std::uintptr_t>(pointer)),
      end_(begin_ + std::uintptr_t(bytes)),
      pitch_(std::uintptr_t(pitch)),
      row_bytes_(std::uintptr_t(row_bytes)) {}

Occupied::Occupied(const void* pointer, const OperandMatrix& matrix) : Occupied(pointer, matrix.batch_bytes()) {
  if (matrix.ld <= 0 || (matrix.batch > 1 && matrix.stride % matrix.ld != 0)) return;
  pitch_ = std::uintptr_t(matrix.ld) * size_of(matrix.type);
  row_bytes_ = std::uintptr_t(matrix.extent) * size_of(matrix.type);
}

bool Occupied::overlaps(const Occupied& other) const {
  if (begin_ >= other.end_ || other.begin_ >= end_) return false;
  if (pitch_ != other.pitch_ || pitch_ == 0) return true;
  const std::uintptr_t apart =
      begin_ < other.begin_ ? (other.begin_ - begin_) % pitch_ : (pitch_ - (begin_ - other.begin_) % pitch_) % pitch_;
  return apart < row_bytes_ || apart + other.row_bytes_ > pitch_;
}

}  // namespace jitgemm
