#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "contexts.hpp"

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
  /// Each (N, K), by the same table.
  MatrixPointers transposed() const;
  /// Whether one shares memory with an array.
  bool overlap(const View& other) const;
  /// Whether whoever uses them waits for the device, see must_wait().
  bool must_wait() const { return must_wait_; }
  nb::object array(std::size_t group) const;
  /// Throws ValueError where the matrices are gone, and what the table points to.
  void require_arrays() const;

  // See collected.hpp. The context stays, which the table is of.
  template <typename Visit>
  void each_held(const Visit& visit) const {
    for (const nb::object& array : arrays_) visit(array);
    for (const nb::object& keeper : keepers_) visit(keeper);
    visit(context_);
  }
  void drop_held() {
    const std::vector<nb::object> keepers = std::exchange(keepers_, {}), arrays = std::exchange(arrays_, {});
  }

 private:
  std::vector<nb::object> arrays_;   // as they were given
  std::vector<nb::object> keepers_;  // whose memory it is, where it is not the arrays' own, see Array::keeper()
  bool transposed_ = false;
  std::vector<std::uintptr_t> addresses_;
  nb::object context_;
  View view_;
  Place place_;
  std::shared_ptr<void> table_;
  int alignment_ = 16;
  bool must_wait_ = false;
};

}  // namespace jitgemm::python
