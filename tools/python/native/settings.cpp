#include "settings.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <optional>
#include <string>

#include "torch_state.hpp"

namespace jitgemm::python {
namespace {

[[noreturn]] void refuse_choice(const char* what, std::string_view text, const char* choices) {
  constexpr std::size_t longest = 80;
  const std::string shown = text.size() <= longest ? std::string(text) : std::string(text.substr(0, longest)) + "...";
  throw nb::value_error((std::string(what) + " is \"" + shown + "\"; choose one of " + choices).c_str());
}

}  // namespace

std::string_view text_of(nb::handle text, const char* what, const char* choices) {
  if (!PyUnicode_Check(text.ptr()))
    throw nb::type_error((std::string(what) + " is no string; choose one of " + choices).c_str());
  std::string_view result;
  if (nb::try_cast(text, result)) return result;
  throw nb::value_error((std::string(what) + " is no text of Unicode; choose one of " + choices).c_str());
}

Activation activation_of(nb::handle activation) {
  constexpr const char* choices = "None, relu, leaky_relu, gelu (gelu_erf), gelu_tanh, silu";
  if (activation.is_none()) return Activation::none;
  const std::string_view text = text_of(activation, "activation", choices);
  if (text == "gelu") return Activation::gelu_erf;  // torch's and JAX's own name for it
  const std::optional<Activation> parsed = parse_activation(text);
  if (!parsed) refuse_choice("activation", text, choices);
  return *parsed;
}

Accumulation accumulation_of(nb::handle accumulation) {
  constexpr const char* choices = "None, fast, promoted";
  if (accumulation.is_none()) return Accumulation::fast;
  const std::string_view text = text_of(accumulation, "accumulation", choices);
  const std::optional<Accumulation> parsed = parse_accumulation(text);
  if (!parsed) refuse_choice("accumulation", text, choices);
  return *parsed;
}

bool is_tf32(nb::handle precision, const ArrayType& type) {
  constexpr const char* choices = "None, ieee, tf32";
  if (precision.is_none()) {
    if (!type.is_torch()) return false;
    return torch_prefers_tf32();
  }
  const std::string_view text = text_of(precision, "precision", choices);
  if (text != "ieee" && text != "tf32") refuse_choice("precision", text, choices);
  return text == "tf32";
}

bool is_number(nb::handle value) {
  if (PyFloat_Check(value.ptr()) || PyLong_Check(value.ptr())) return true;
  return !value.is_none() && nb::hasattr(value, "__float__") && !nb::hasattr(value, "__dlpack__");  // NumPy's scalars
}

double number_of(nb::handle value, const char* what) {
  if (PyFloat_CheckExact(value.ptr())) return PyFloat_AsDouble(value.ptr());
  if (nb::hasattr(value, "requires_grad"))  // whose gradient a number would lose
    throw nb::type_error((std::string(what) + " is a tensor; pass a number, " + what + ".item() for instance").c_str());
  const double number = PyFloat_AsDouble(value.ptr());
  if (number != -1 || !PyErr_Occurred()) return number;
  PyErr_Clear();
  throw nb::type_error((std::string(what) + " is no number that a float holds").c_str());
}

std::optional<KernelConfig> config_of(nb::handle config) {
  if (config.is_none()) return std::nullopt;
  return parse_kernel_config(text_of(config, "config", "what Plan.config says, or the words it is made of"));
}

DataType data_type_of(nb::handle dtype, const char* what) {
  std::string text;
  if (PyUnicode_Check(dtype.ptr()))
    text = nb::cast<std::string>(dtype);
  else if (nb::hasattr(dtype, "name"))
    text = nb::cast<std::string>(nb::str(dtype.attr("name")));  // NumPy's dtype
  else if (nb::hasattr(dtype, "__name__"))
    text = nb::cast<std::string>(nb::str(dtype.attr("__name__")));  // its scalar
  else
    text = nb::cast<std::string>(nb::str(dtype));  // torch's
  text = text.substr(text.rfind('.') + 1);
  if (const std::optional<DataType> parsed = parse_data_type(text)) return *parsed;
  if (const std::optional<DataType> named = data_type_named(text)) return *named;
  throw nb::type_error((std::string(what) + " is " + text +
                        "; choose one of float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2, int8, int32")
                           .c_str());
}

}  // namespace jitgemm::python
