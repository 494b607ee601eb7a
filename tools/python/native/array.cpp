#include "array.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "imported.hpp"
#include "streams.hpp"

namespace jitgemm::python {
namespace {

std::string text_of(const nb::object& object) { return nb::cast<std::string>(nb::steal(PyObject_Str(object.ptr()))); }

constexpr std::intptr_t legacy_default_stream = 1;  // as __dlpack__(stream=) has it

}  // namespace

std::string to_string(const Place& place) { return place.cuda ? "cuda:" + std::to_string(place.number) : "cpu"; }

void require_place(const Place& place, const std::string& name, const Place& of_a) {
  if (place == of_a) return;
  throw nb::value_error(
      (name + " is on " + to_string(place) + ", and a on " + to_string(of_a) + "; move one of them").c_str());
}

Array::Array(nb::handle array, const char* name, bool written, std::optional<std::intptr_t> stream)
    : object_(array), type_(&array_type(array, name)) {
  if (type_->api && type_->is_torch()) {
    read_torch(name);
  } else if (type_->api) {
    dlpack::Tensor tensor = {};
    if (type_->api->dltensor_from_py_object_no_sync(array.ptr(), &tensor) != 0) throw nb::python_error();
    read(tensor, name);
  } else if (type_->kind == ArrayType::Kind::numpy) {
    read_numpy(name, written);
  } else {
    read_capsule(name, written, stream);
  }
}

void Array::read(const dlpack::Tensor& tensor, const char* name) {
  if (tensor.ndim < 0 || (tensor.ndim > 0 && !tensor.shape))
    throw nb::type_error((std::string(name) + " gave a DLPack tensor without a shape; it is not an array").c_str());
  switch (tensor.device.device_type) {
    case dlpack::kDLCPU:
    case dlpack::kDLCUDAHost:
      place_ = {};
      break;
    case dlpack::kDLCUDA:
    case dlpack::kDLCUDAManaged:
      place_ = {true, tensor.device.device_id};
      break;
    default:
      throw nb::type_error((std::string(name) + " is on a device of DLPack's kind " +
                            std::to_string(tensor.device.device_type) + "; move it to a CUDA device or the CPU")
                               .c_str());
  }
  const TypeRow* const row = row_of(tensor.dtype);
  if (!row)
    refuse_type(name, nb::hasattr(object_, "dtype") ? text_of(object_.attr("dtype"))
                                                    : "DLPack's code " + std::to_string(tensor.dtype.code) + ", " +
                                                          std::to_string(tensor.dtype.bits) + " bits, " +
                                                          std::to_string(tensor.dtype.lanes) + " lanes");
  if (tensor.ndim > max_rank)
    throw nb::value_error(
        (std::string(name) + " has more than " + std::to_string(max_rank) + " dimensions; reshape it").c_str());
  view_.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  view_.type = row->type;
  view_.rank = tensor.ndim;
  std::int64_t packed = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    const auto at = std::size_t(i);
    if (tensor.shape[i] < 0)
      throw nb::type_error(
          (std::string(name) + " gave a DLPack tensor of a negative extent; it is not an array").c_str());
    view_.shape[at] = tensor.shape[i];
    view_.strides[at] = tensor.strides ? tensor.strides[i] : packed;
    packed *= tensor.shape[i];
  }
}

// The exchange API hands out the memory of tensors that mean something else by it.
void Array::read_torch(const char* name) {
  dlpack::Tensor tensor = {};
  if (type_->api->dltensor_from_py_object_no_sync(object_.ptr(), &tensor) != 0) {
    PyErr_Clear();  // pages of torch's own code
    throw UnreadableTensor(
        std::string(name) + " is a tensor of layout " + text_of(object_.attr("layout")) + " on " +
        text_of(object_.attr("device")) + ", type " + text_of(object_.attr("dtype")) +
        ", without memory that can be read as it lies; pass a dense one on the CPU or a CUDA device");
  }
  read(tensor, name);
  if (!tensor.data && view_.elements() > 0)
    throw UnreadableTensor(std::string(name) + " has no memory; pass a tensor that has");
  // The imaginary part of a conjugated tensor is a view of every other element, with a note to negate them.
  if (view_.type != DataType::f16 && view_.type != DataType::f32 && view_.type != DataType::f64) return;
  for (int i = 0; i < view_.rank; ++i)
    if (view_.shape[std::size_t(i)] > 1 && view_.strides[std::size_t(i)] == 1) return;
  static PyObject* const is_neg = PyUnicode_InternFromString("is_neg");
  PyObject* self = object_.ptr();
  const nb::object negated = nb::steal(PyObject_VectorcallMethod(is_neg, &self, 1, nullptr));
  if (!negated.is_valid()) throw nb::python_error();
  if (negated.is(nb::handle(Py_True)))
    throw UnreadableTensor(std::string(name) + " is to be negated when it is read; pass its resolve_neg()");
}

// Not by __dlpack__: that refuses arrays that are read-only, and types that NumPy has from ml_dtypes.
void Array::read_numpy(const char* name, bool written) {
  static constinit Imported plain("numpy", "ndarray");
  if (!object_.type().is(*plain)) {  // whose attributes may be anything
    const nb::object masked = nb::module_::import_("numpy.ma").attr("MaskedArray");
    if (PyObject_IsInstance(object_.ptr(), masked.ptr()) == 1)
      throw nb::type_error((std::string(name) + " is a masked array; pass filled() of it").c_str());
    keeper_ = nb::module_::import_("numpy").attr("asarray")(object_);
    object_ = keeper_;
  }
  const nb::object dtype = object_.attr("dtype");
  const TypeRow& row = numpy_type(dtype, name);
  if (!nb::cast<bool>(dtype.attr("isnative")))
    throw nb::type_error((std::string(name) + " has the other byte order; convert it by astype()").c_str());
  const nb::dict interface = nb::cast<nb::dict>(object_.attr("__array_interface__"));
  const auto [address, read_only] = nb::cast<std::pair<std::uintptr_t, bool>>(interface["data"]);
  if (written && read_only) {
    PyErr_SetString(PyExc_ValueError, (std::string(name) + " is read-only; pass an array that can be written").c_str());
    throw nb::python_error();
  }
  const nb::tuple shape = nb::cast<nb::tuple>(object_.attr("shape"));
  const nb::tuple strides = nb::cast<nb::tuple>(object_.attr("strides"));
  if (shape.size() > std::size_t(max_rank))
    throw nb::value_error(
        (std::string(name) + " has more than " + std::to_string(max_rank) + " dimensions; reshape it").c_str());
  view_.data = reinterpret_cast<void*>(address);
  view_.type = row.type;
  view_.rank = int(shape.size());
  const std::int64_t bytes = row.bits / 8;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    view_.shape[i] = nb::cast<std::int64_t>(shape[i]);
    const std::int64_t stride = nb::cast<std::int64_t>(strides[i]);
    if (stride % bytes != 0)
      throw nb::value_error(
          (std::string(name) + " has a stride that is not a multiple of its elements' size; copy it first").c_str());
    view_.strides[i] = stride / bytes;
  }
}

void Array::read_capsule(const char* name, bool written, std::optional<std::intptr_t> stream) {
  if (written && type_->is_jax())
    throw nb::type_error((std::string(name) + " is of JAX, whose arrays are immutable; leave it out").c_str());
  if (!nb::hasattr(object_, "__dlpack_device__"))
    throw nb::type_error((std::string(name) + (type_->is_jax() ? " is traced by JAX; call jitgemm outside jax.jit, "
                                                                 "jax.grad and jax.vmap, or by jax.pure_callback"
                                                               : " has no __dlpack_device__(); it is not an array"))
                             .c_str());
  nb::dict arguments;
  std::pair<int, int> device;
  if (!nb::try_cast(object_.attr("__dlpack_device__")(), device))
    throw nb::type_error(
        (std::string(name) + ".__dlpack_device__() gave no pair of integers; it is not an array").c_str());
  const bool cuda = device.first == dlpack::kDLCUDA || device.first == dlpack::kDLCUDAManaged;
  if (cuda) {
    // The producer makes this stream wait for what it has queued elsewhere.
    const Place place{true, device.second};
    const auto used = stream ? *stream : reinterpret_cast<std::intptr_t>(current_stream(*type_, place));
    arguments["stream"] = used == 0 ? legacy_default_stream : used;
  }
  nb::object method = object_.attr("__dlpack__");
  arguments["max_version"] = nb::make_tuple(1, 0);
  try {
    keeper_ = method(**arguments);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    PyDict_DelItemString(arguments.ptr(), "max_version");  // of before version 1
    keeper_ = method(**arguments);
  }
  if (PyCapsule_IsValid(keeper_.ptr(), "dltensor_versioned")) {
    const auto& tensor =
        *static_cast<dlpack::ManagedTensorVersioned*>(PyCapsule_GetPointer(keeper_.ptr(), "dltensor_versioned"));
    if (tensor.version.major != dlpack::major_version)
      throw nb::type_error((std::string(name) + " speaks another version of DLPack; update jitgemm").c_str());
    if (written && (tensor.flags & dlpack::flag_read_only)) {
      PyErr_SetString(PyExc_ValueError,
                      (std::string(name) + " is read-only; pass an array that can be written").c_str());
      throw nb::python_error();
    }
    read(tensor.dl_tensor, name);
  } else if (PyCapsule_IsValid(keeper_.ptr(), "dltensor")) {
    read(static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(keeper_.ptr(), "dltensor"))->dl_tensor, name);
  } else {
    throw nb::type_error((std::string(name) + " gave no DLPack capsule; it is not an array that is known").c_str());
  }
}

}  // namespace jitgemm::python
