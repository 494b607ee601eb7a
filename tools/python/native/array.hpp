#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "array_types.hpp"
#include "view.hpp"

namespace jitgemm::python {

/// Where an array's memory is, as far as that decides who computes.
struct Place {
  bool cuda = false;
  int number = 0;  // of the CUDA device

  bool operator==(const Place&) const = default;
};
std::string to_string(const Place& place);  // "cpu" or "cuda:0"

/// Throws ValueError where the array `name` is not where the operand a is.
void require_place(const Place& place, const std::string& name, const Place& of_a);

/// A tensor of torch's whose elements are not what lies in its memory; its operators may know what to do. A TypeError.
struct UnreadableTensor : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An argument: a view of its memory, valid while this lives and Python's lock is held or the array is.
class Array {
 public:
  /// Throws TypeError for what is no array or of a type that no GEMM takes, UnreadableTensor, BufferError for one that
  /// is read-only though it is `written`. `stream`: what a producer that is not on the caller's stream is to make wait.
  Array(nb::handle array, const char* name, bool written = false, std::optional<std::intptr_t> stream = {});

  const View& view() const { return view_; }
  const Place& place() const { return place_; }
  const ArrayType& type() const { return *type_; }
  nb::handle object() const { return object_; }
  nb::handle keeper() const { return keeper_; }  ///< what it owns, if anything

 private:
  void read(const dlpack::Tensor& tensor, const char* name);
  void read_torch(const char* name);
  void read_numpy(const char* name, bool written);
  void read_capsule(const char* name, bool written, std::optional<std::intptr_t> stream);

  nb::handle object_;
  const ArrayType* type_;
  View view_;
  Place place_;
  nb::object keeper_;  // the capsule, where the view is not borrowed from the array itself
};

}  // namespace jitgemm::python
