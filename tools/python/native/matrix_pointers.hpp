#pragma once

#include <cstdint>
#include <vector>

#include "contexts.hpp"
#include "tune/device_memory.hpp"

namespace jitgemm::python {

/// Matrices of one shape and layout, each in memory of its own, and a table of pointers to them on their device: the
/// weights of groups (BatchMode::pointers).
class MatrixPointers {
 public:
  /// Of arrays (K, N). The table is there on return. Throws TypeError and ValueError for what does not go together.
  MatrixPointers(nb::handle arrays, nb::handle context);

  /// (groups, K, N), as if the matrices had no distance; without memory.
  const View& view() const { return view_; }
  const Place& place() const { return place_; }
  const void* table() const { return table_.get(); }
  /// Bytes that all pointers are multiples of, 16 at most.
  int alignment() const { return alignment_; }
  bool requires_gradients() const;
  /// Whether one shares memory with an array, whose strides do not count down.
  bool overlap(const View& other) const;
  /// Whether whoever uses them waits for the device, see must_wait().
  bool must_wait() const { return must_wait_; }
  const nb::list& arrays() const { return arrays_; }
  /// Throws ValueError where the matrices are gone, and what the table points to.
  void require_arrays() const;

  // See collected.hpp. The context stays, which the table is of.
  template <typename Visit>
  void each_held(const Visit& visit) const {
    visit(arrays_);
    visit(context_);
  }
  void drop_held() { PyList_SetSlice(arrays_.ptr(), 0, PY_SSIZE_T_MAX, nullptr); }

 private:
  nb::list arrays_;  // whose memory it is
  std::vector<std::uintptr_t> addresses_;
  nb::object context_;
  View view_;
  Place place_;
  DeviceMemory table_;
  int alignment_ = 16;
  bool must_wait_ = false;
};

}  // namespace jitgemm::python
