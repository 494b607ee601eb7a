#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dlpack.hpp"
#include "jitgemm/types.hpp"

namespace jitgemm::python {
namespace nb = nanobind;

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

/// "numpy.ndarray"
std::string python_name(nb::handle type);

/// A type of elements that arrays may have.
struct TypeRow {
  DataType type;
  std::uint8_t code, bits;
  const char* name;  // NumPy's, ml_dtypes' and CuPy's
};
const TypeRow& row_of(DataType type);
/// Null where there is none.
const TypeRow* row_of(const dlpack::DataType& type);
/// Of a NumPy dtype. Throws TypeError, as refuse_type() does; `name` is the array's.
const TypeRow& numpy_type(nb::handle dtype, const char* name);
[[noreturn]] void refuse_type(const char* name, const std::string& type);

/// Of a name as NumPy has it; nullopt for others.
std::optional<DataType> data_type_named(std::string_view name);
const char* name_of(DataType type);

}  // namespace jitgemm::python
