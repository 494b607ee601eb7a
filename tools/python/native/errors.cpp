#include "errors.hpp"

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

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
    case ErrorCode::peer_lost:
    case ErrorCode::communicator_failed:
      break;
  }
  return PyExc_RuntimeError;
}

void set_text(PyObject* exception, const char* name, const std::string& text) {
  if (nb::object value = nb::steal(PyUnicode_DecodeUTF8(text.data(), Py_ssize_t(text.size()), "replace")))
    PyObject_SetAttrString(exception, name, value.ptr());
}

void raise(const Error& error) {
  const nb::object message =
      nb::steal(PyUnicode_DecodeUTF8(error.what(), Py_ssize_t(std::string_view(error.what()).size()), "replace"));
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

void refuse_value(const std::string& why) { throw nb::value_error(why.c_str()); }

}  // namespace jitgemm::python
