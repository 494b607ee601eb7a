#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "dlpack.hpp"
#include "jitgemm/types.hpp"
#include "product.hpp"

namespace jitgemm::python {
namespace nb = nanobind;

/// Where an array's memory is, as far as that decides who computes.
struct Place {
  bool cuda = false;
  int number = 0;  // of the CUDA device

  bool operator==(const Place&) const = default;
};
std::string to_string(const Place& place);  // "cpu" or "cuda:0"

/// What kind of array a Python type is: found out once a type.
struct ArrayType {
  enum class Kind : std::uint8_t {
    torch,           ///< torch.Tensor or torch.nn.Parameter
    torch_subclass,  ///< which may mean anything by its operations
    numpy,
    other,  ///< by `__dlpack__`
  };
  nb::object type;  // held, so that no other type takes its address
  Kind kind = Kind::other;
  const dlpack::ExchangeApi* api = nullptr;
  std::string package;  // the first word of its module: "cupy"

  bool is_torch() const { return kind == Kind::torch || kind == Kind::torch_subclass; }
  bool is_jax() const { return package == "jaxlib" || package == "jax"; }  // whose tracers are of the latter
  /// Whether the framework frees and reads memory in the order of the stream that is used. Of others the stream is
  /// waited for.
  bool follows_stream() const { return api || is_torch() || package == "cupy"; }
};

/// Throws TypeError for what is no array; `name` is the argument's.
const ArrayType& array_type(nb::handle array, const char* name);

/// Whether one of them was torch's so far.
bool knows_torch();

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

/// Of a name as NumPy has it; nullopt for others.
std::optional<DataType> data_type_named(std::string_view name);
const char* name_of(DataType type);

/// The stream that the array's framework queues work on.
Stream current_stream(const ArrayType& type, const Place& place);
/// Of an integer, an object with `__cuda_stream__`, torch's or CuPy's. Throws TypeError.
Stream stream_of(nb::handle stream);

/// A new array of the same framework to write to, contents undefined; of JAX's on the CPU, which nobody may write to,
/// one of NumPy's. Throws TypeError where the framework cannot make one.
nb::object empty_array(const Array& like, const Shape& shape, DataType type);
/// What the caller gets of it, once it is written.
nb::object finished_array(const Array& like, nb::object written);
/// A contiguous copy. Throws TypeError for frameworks that are not known to make one.
nb::object contiguous_copy(const Array& array, const char* name);

}  // namespace jitgemm::python
