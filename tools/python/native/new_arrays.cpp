#include "new_arrays.hpp"

#include <array>
#include <string>
#include <utility>

namespace jitgemm::python {
namespace {

nb::object named_dtype(const char* module, DataType type) {
  const char* name = row_of(type).name;
  nb::object library = nb::module_::import_(module);
  if (nb::hasattr(library, name)) return library.attr(name);
  try {
    return nb::module_::import_("ml_dtypes").attr(name);
  } catch (nb::python_error&) {
    throw nb::type_error((std::string(module) + " has no " + name +
                          "; install ml_dtypes, or pass out_dtype=\"f32\" or an out of another type")
                             .c_str());
  }
}

/// Python's `with`, whose block ends without an exception for the context manager.
class Within {
 public:
  explicit Within(nb::object manager) : manager_(std::move(manager)) { manager_.attr("__enter__")(); }
  ~Within() {
    try {
      manager_.attr("__exit__")(nb::none(), nb::none(), nb::none());
    } catch (nb::python_error& error) {
      error.discard_as_unraisable(manager_);
    }
  }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  nb::object manager_;
};

nb::tuple tuple_of(const Shape& shape) {
  nb::list extents;
  for (int i = 0; i < shape.rank; ++i) extents.append(shape.extents[std::size_t(i)]);
  return nb::tuple(extents);
}

/// Keeps the first error that a framework's allocator reports.
struct AllocatorError {
  std::string text;

  static void set(void* self, const char* kind, const char* message) {
    static_cast<AllocatorError*>(self)->text = std::string(kind) + ": " + message;
  }
};

nb::object allocate(const Array& like, const Shape& shape, DataType type) {
  const TypeRow& row = row_of(type);
  std::array<std::int64_t, max_rank> extents = shape.extents;
  dlpack::Tensor prototype = {};
  prototype.device = {like.place().cuda ? dlpack::kDLCUDA : dlpack::kDLCPU, like.place().number};
  prototype.ndim = shape.rank;
  prototype.dtype = {row.code, row.bits, 1};
  prototype.shape = extents.data();
  dlpack::ManagedTensorVersioned* tensor = nullptr;
  AllocatorError error;
  const dlpack::ExchangeApi& api = *like.type().api;
  if (api.managed_tensor_allocator(&prototype, &tensor, &error, &AllocatorError::set) != 0) {
    if (PyErr_Occurred()) throw nb::python_error();
    PyErr_SetString(PyExc_MemoryError, ("no memory for the result: " + error.text).c_str());
    throw nb::python_error();
  }
  void* object = nullptr;
  if (api.managed_tensor_to_py_object_no_sync(tensor, &object) != 0) throw nb::python_error();
  return nb::steal(static_cast<PyObject*>(object));
}

}  // namespace

nb::object empty_array(const Array& like, const Shape& shape, DataType type) {
  if (like.type().api) return allocate(like, shape, type);
  const std::string& package = like.type().package;
  if (like.type().kind == ArrayType::Kind::numpy || (like.type().is_jax() && !like.place().cuda))
    return nb::module_::import_("numpy").attr("empty")(tuple_of(shape), named_dtype("numpy", type));
  if (package == "cupy" && like.place().cuda) {
    const nb::object dtype = named_dtype("cupy", type);
    const nb::object cupy = nb::module_::import_("cupy");
    const Within device(cupy.attr("cuda").attr("Device")(like.place().number));
    return cupy.attr("empty")(tuple_of(shape), dtype);
  }
  throw nb::type_error(("jitgemm cannot make arrays of " + python_name(like.type().type) + "; pass out=").c_str());
}

nb::object finished_array(const Array& like, nb::object written) {
  if (!like.type().is_jax()) return written;
  return nb::module_::import_("jax.numpy").attr("asarray")(written);
}

nb::object contiguous_copy(const Array& array, const char* name) {
  if (array.type().is_torch()) return array.object().attr("contiguous")();
  const bool numpy = array.type().kind == ArrayType::Kind::numpy || (array.type().is_jax() && !array.place().cuda);
  if (numpy || array.type().package == "cupy") {
    const char* module = numpy ? "numpy" : "cupy";
    return nb::module_::import_(module).attr("ascontiguousarray")(array.object());
  }
  throw nb::type_error((std::string(name) +
                        " is contiguous in neither of its last two dimensions, and jitgemm cannot copy a " +
                        python_name(array.type().type) + "; pass a contiguous one")
                           .c_str());
}

}  // namespace jitgemm::python
