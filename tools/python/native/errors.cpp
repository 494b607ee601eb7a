#include "errors.hpp"

#include <nanobind/nanobind.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "array.hpp"
#include "jitgemm/error.hpp"

namespace jitgemm::python {
namespace nb = nanobind;
namespace {

PyObject* kind_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_problem:
    case ErrorCode::invalid_operand:
    case ErrorCode::invalid_config:
    case ErrorCode::invalid_option:
    case ErrorCode::workspace_too_small:
      return PyExc_ValueError;
    case ErrorCode::out_of_memory:
      return PyExc_MemoryError;
    case ErrorCode::io:
      return PyExc_OSError;
    case ErrorCode::no_device:
    case ErrorCode::no_compiler:
    case ErrorCode::compile_failed:
    case ErrorCode::load_failed:
    case ErrorCode::launch_failed:
    case ErrorCode::not_capturable:
    case ErrorCode::emulator_fault:
    case ErrorCode::internal:
      break;
  }
  return PyExc_RuntimeError;
}

void set_text(PyObject* exception, const char* name, const std::string& text) {
  if (nb::object value = nb::steal(PyUnicode_DecodeUTF8(text.data(), Py_ssize_t(text.size()), "replace")))
    PyObject_SetAttrString(exception, name, value.ptr());
}

/// The library's sentence with Python's words for what it names as C++ does.
std::string in_python(std::string text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> words{
      {{"Device::emulator", "\"cpu\""}, {"Device::compile_only", "\"compile_only\""}, {"nullptr", "None"}}};
  for (const auto& [cpp, python] : words)
    for (std::size_t at = 0; (at = text.find(cpp, at)) != text.npos; at += python.size())
      text.replace(at, cpp.size(), python);
  return text;
}

void raise(const Error& error) {
  const std::string text = in_python(error.what());
  const nb::object message = nb::steal(PyUnicode_DecodeUTF8(text.data(), Py_ssize_t(text.size()), "replace"));
  if (!message.is_valid()) return;  // no memory, which Python says itself
  PyObject* const kind = kind_of(error.code());
  const nb::object exception = nb::steal(PyObject_CallFunctionObjArgs(kind, message.ptr(), nullptr));
  if (!exception.is_valid()) return;
  set_text(exception.ptr(), "code", to_string(error.code()));
  set_text(exception.ptr(), "problem", error.problem());
  set_text(exception.ptr(), "config", error.config());
  set_text(exception.ptr(), "call", error.call());
  set_text(exception.ptr(), "log", error.log());
  PyErr_SetObject(kind, exception.ptr());
}

}  // namespace

void register_errors(nb::module_& module) {
  nb::exception<UnreadableTensor>(module, "UnreadableTensor", PyExc_TypeError);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      raise(error);
    } catch (const ShapeError& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    } catch (const std::bad_cast&) {
      PyErr_SetString(PyExc_TypeError, "an argument, or an attribute of one, is of the wrong type or out of its range");
    }
  });
}

}  // namespace jitgemm::python
