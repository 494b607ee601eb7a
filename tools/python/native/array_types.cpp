#include "array_types.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

namespace jitgemm::python {
namespace {

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

bool speaks_dlpack(const ArrayType& type) {
  return type.api || type.kind == ArrayType::Kind::numpy || type.kind == ArrayType::Kind::torch_subclass ||
         nb::hasattr(type.type, "__dlpack__");
}

}  // namespace

const TypeRow& row_of(DataType type) {
  if (type == DataType::tf32) type = DataType::f32;
  return *std::find_if(std::begin(type_rows), std::end(type_rows),
                       [&](const TypeRow& row) { return row.type == type; });
}

const TypeRow* row_of(const dlpack::DataType& type) {
  const auto row = std::find_if(std::begin(type_rows), std::end(type_rows), [&](const TypeRow& candidate) {
    return candidate.code == type.code && candidate.bits == type.bits && type.lanes == 1;
  });
  return row == std::end(type_rows) ? nullptr : row;
}

void refuse_type(const char* name, const std::string& type) {
  const std::string_view argument = name;
  if (argument == "offs" || argument == "counts")
    throw nb::type_error((std::string(name) + " has elements of " + type + "; convert it to int32, by " + name +
                          ".astype('int32') or torch's .int() for instance")
                             .c_str());
  throw nb::type_error(
      (std::string(name) + " has elements of " + type + "; convert it to one of " + type_names).c_str());
}

// Its name is found by Python code, where a daemon thread may meet the interpreter's end, which up to Python 3.13 ends
// the process: names are asked for once.
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

std::optional<DataType> data_type_named(std::string_view name) {
  for (const TypeRow& row : type_rows)
    if (row.name == name) return row.type;
  return std::nullopt;
}

const char* name_of(DataType type) { return row_of(type).name; }

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

}  // namespace jitgemm::python
