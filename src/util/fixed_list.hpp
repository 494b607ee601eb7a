#pragma once

#include <array>
#include <cstddef>

namespace jitgemm {

/// A list of at most `Most` values that lies where it is declared. Adding more is a fault of the caller.
template <typename Value, std::size_t Most>
class FixedList {
 public:
  /// Returns the new last value.
  Value& add(const Value& value) { return values_[size_++] = value; }
  /// The new last value is as it was when it was removed, or as the list was made.
  Value& extend() { return values_[size_++]; }
  void remove_last() { --size_; }

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  const Value* begin() const { return values_.data(); }
  const Value* end() const { return values_.data() + size_; }
  const Value& back() const { return values_[size_ - 1]; }

 private:
  std::array<Value, Most> values_{};
  std::size_t size_ = 0;
};

}  // namespace jitgemm
