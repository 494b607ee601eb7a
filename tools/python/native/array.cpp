#include "array.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

#include "imported.hpp"

namespace jitgemm::python {
namespace {

struct TypeRow {
  DataType type;
  std::uint8_t code, bits;
  const char* name;  // NumPy's, ml_dtypes' and CuPy's
};
constexpr TypeRow type_rows[] = {
    {DataType::f16, dlpack::kDLFloat, 16, "float16"},
    {DataType::bf16, dlpack::kDLBfloat, 16, "bfloat16"},
    {DataType::f32, dlpack::kDLFloat, 32, "float32"},  // tf32's elements, too
    {DataType::f64, dlpack::kDLFloat, 64, "float64"},
    {DataType::e4m3, dlpack::kDLFloat8_e4m3fn, 8, "float8_e4m3fn"},
    {DataType::e5m2, dlpack::kDLFloat8_e5m2, 8, "float8_e5m2"},
    {DataType::s8, dlpack::kDLInt, 8, "int8"},
    {DataType::s32, dlpack::kDLInt, 32, "int32"},
};
constexpr const char* type_names =
    "float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2, int8, and int32 for results";

const TypeRow& row_of(DataType type) {
  if (type == DataType::tf32) type = DataType::f32;
  return *std::find_if(std::begin(type_rows), std::end(type_rows),
                       [&](const TypeRow& row) { return row.type == type; });
}

[[noreturn]] void refuse_type(const char* name, const std::string& type) {
  throw nb::type_error(
      (std::string(name) + " has elements of " + type + "; convert it to one of " + type_names).c_str());
}

/// Of a NumPy dtype. Its name is found by Python code, where a daemon thread may meet the interpreter's end, which up
/// to Python 3.13 ends the process: names are asked for once.
const TypeRow& numpy_type(nb::handle dtype, const char* name) {
  static auto& known = *new std::map<int, const TypeRow*>;
  const TypeRow*& row = known[nb::cast<int>(dtype.attr("num"))];
  if (row) return *row;
  const std::string text = nb::cast<std::string>(dtype.attr("name"));
  const auto found = std::find_if(std::begin(type_rows), std::end(type_rows),
                                  [&](const TypeRow& candidate) { return text == candidate.name; });
  if (found == std::end(type_rows)) refuse_type(name, text);
  return *(row = found);
}

std::string python_name(nb::handle type) {
  return nb::cast<std::string>(type.attr("__module__")) + "." + nb::cast<std::string>(type.attr("__qualname__"));
}

/// A module that the program has loaded, else None.
nb::object loaded_module(const char* name) { return nb::module_::import_("sys").attr("modules").attr("get")(name); }

const dlpack::ExchangeApi* exchange_api(nb::handle type) {
  nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (!PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return nullptr;
  auto* header = static_cast<dlpack::ExchangeApiHeader*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (header && header->version.major != dlpack::major_version) header = header->prev_api;
  const auto* api = reinterpret_cast<const dlpack::ExchangeApi*>(header);
  return api && api->dltensor_from_py_object_no_sync ? api : nullptr;
}

ArrayType inspect(nb::handle type) {
  ArrayType result;
  result.type = nb::borrow(type);
  const std::string module = nb::cast<std::string>(type.attr("__module__"));
  result.package = module.substr(0, module.find('.'));
  if (nb::object torch = loaded_module("torch"); !torch.is_none() && nb::hasattr(torch, "Tensor")) {
    const nb::object tensor = torch.attr("Tensor");
    if (type.is(tensor) || type.is(torch.attr("nn").attr("Parameter")))
      result.kind = ArrayType::Kind::torch;
    else if (PyObject_IsSubclass(type.ptr(), tensor.ptr()) == 1 ||
             (nb::hasattr(type, "__torch_function__") && !nb::hasattr(type, "__dlpack__")))  // torch.fx.Proxy, say
      result.kind = ArrayType::Kind::torch_subclass;
  }
  if (nb::object numpy = loaded_module("numpy"); !numpy.is_none() && nb::hasattr(numpy, "ndarray") &&
                                                 PyObject_IsSubclass(type.ptr(), numpy.attr("ndarray").ptr()) == 1)
    result.kind = ArrayType::Kind::numpy;
  PyErr_Clear();
  result.api = exchange_api(type);
  return result;
}

/// Under Python's lock; outlives the interpreter.
std::deque<ArrayType>& known_types() {
  static auto& types = *new std::deque<ArrayType>;
  return types;
}

std::string text_of(const nb::object& object) { return nb::cast<std::string>(nb::steal(PyObject_Str(object.ptr()))); }

bool speaks_dlpack(const ArrayType& type) {
  return type.api || type.kind == ArrayType::Kind::numpy || type.kind == ArrayType::Kind::torch_subclass ||
         nb::hasattr(type.type, "__dlpack__");
}

constexpr std::intptr_t legacy_default_stream = 1;  // as __dlpack__(stream=) has it

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

std::optional<DataType> data_type_named(std::string_view name) {
  for (const TypeRow& row : type_rows)
    if (row.name == name) return row.type;
  return std::nullopt;
}

const char* name_of(DataType type) { return row_of(type).name; }

std::string to_string(const Place& place) { return place.cuda ? "cuda:" + std::to_string(place.number) : "cpu"; }

bool knows_torch() {
  const std::deque<ArrayType>& known = known_types();
  return std::any_of(known.begin(), known.end(), [](const ArrayType& type) { return type.is_torch(); });
}

const ArrayType& array_type(nb::handle array, const char* name) {
  std::deque<ArrayType>& known = known_types();
  const nb::handle type = array.type();
  for (const ArrayType& entry : known)
    if (entry.type.is(type)) return entry;
  ArrayType entry = inspect(type);
  if (!speaks_dlpack(entry))
    throw nb::type_error((std::string(name) + " is a " + python_name(type) +
                          ", which does not speak DLPack; pass an array of NumPy, torch, CuPy or JAX")
                             .c_str());
  known.push_back(std::move(entry));
  return known.back();
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
  const auto row = std::find_if(std::begin(type_rows), std::end(type_rows), [&](const TypeRow& candidate) {
    return candidate.code == tensor.dtype.code && candidate.bits == tensor.dtype.bits && tensor.dtype.lanes == 1;
  });
  if (row == std::end(type_rows))
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

Stream current_stream(const ArrayType& type, const Place& place) {
  if (!place.cuda) return nullptr;
  if (type.api) {
    void* stream = nullptr;
    if (type.api->current_work_stream(dlpack::kDLCUDA, place.number, &stream) != 0) throw nb::python_error();
    return static_cast<Stream>(stream);
  }
  if (type.is_torch())
    return stream_of(nb::module_::import_("torch").attr("cuda").attr("current_stream")(place.number));
  if (type.package == "cupy") return stream_of(nb::module_::import_("cupy").attr("cuda").attr("get_current_stream")());
  return nullptr;
}

Stream stream_of(nb::handle stream) {
  const auto from_integer = [](nb::handle value) {
    std::uintptr_t handle = 0;
    if (nb::try_cast(value, handle)) return reinterpret_cast<Stream>(handle);
    throw nb::type_error("stream is no handle of a CUDA stream; pass 0 for the default one");
  };
  if (PyLong_Check(stream.ptr())) return from_integer(stream);
  if (nb::hasattr(stream, "__cuda_stream__")) {
    nb::object described = stream.attr("__cuda_stream__");
    if (PyCallable_Check(described.ptr())) described = described();
    return from_integer(described[1]);
  }
  for (const char* attribute : {"cuda_stream", "ptr"})
    if (nb::hasattr(stream, attribute)) return from_integer(stream.attr(attribute));
  throw nb::type_error("stream is no CUDA stream; pass its handle as an integer, or one of torch's or CuPy's");
}

nb::object empty_array(const Array& like, const Shape& shape, DataType type) {
  if (like.type().api) return allocate(like, shape, type);
  const std::string& package = like.type().package;
  if (like.type().kind == ArrayType::Kind::numpy || (like.type().is_jax() && !like.place().cuda))
    return nb::module_::import_("numpy").attr("empty")(tuple_of(shape), named_dtype("numpy", type));
  if (package == "cupy" && like.place().cuda) {
    nb::object cupy = nb::module_::import_("cupy");
    const nb::object device = cupy.attr("cuda").attr("Device")(like.place().number);
    device.attr("__enter__")();
    nb::object result = cupy.attr("empty")(tuple_of(shape), named_dtype("cupy", type));
    device.attr("__exit__")(nb::none(), nb::none(), nb::none());
    return result;
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
