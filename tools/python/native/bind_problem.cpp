#include <nanobind/stl/string.h>

#include "bindings.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/problem.hpp"
#include "settings.hpp"

namespace jitgemm::python {
namespace {

using namespace nb::literals;

std::string size_word(const char* name, nb::handle size) {
  const nb::object integer = nb::steal(PyNumber_Index(size.ptr()));
  if (!integer.is_valid()) {
    PyErr_Clear();
    throw nb::type_error((std::string(name) + " is no integer; pass m, n and k, or one text").c_str());
  }
  return std::string(name) + "=" + nb::cast<std::string>(nb::str(nb::handle(integer))) + " ";
}

/// A field as Problem's text has it; types also by the names of NumPy and torch.
std::string field_word(const std::string& name, nb::handle value) {
  if (value.is_none()) return "";
  std::string text;
  const bool is_type = name == "a" || name == "b" || name == "c" || name == "d";
  if (is_type && !(PyUnicode_Check(value.ptr()) && nb::cast<std::string>(value) == "automatic"))
    text = to_string(data_type_of(value, name.c_str()));
  else
    text = nb::cast<std::string>(nb::str(value));
  if (name == "activation" && text == "gelu") text = "gelu_erf";
  if (text.empty() || text.find_first_of(" =\t\n\r\f\v") != std::string::npos)
    throw nb::value_error((name + " is not one word; see what str() of a Problem shows").c_str());
  return " " + name + "=" + text;
}

}  // namespace

void bind_problem(nb::module_& module) {
  nb::class_<Problem>(
      module, "Problem",
      "What is computed: D = activation(alpha * A * B + beta * C + bias), without the arrays.\n\n"
      "Problem(\"m=64 n=96 k=128 a=bf16 bias=along_n\"), or Problem(64, 96, 128, a=\"bf16\",\n"
      "bias=\"along_n\"). Fields are those that str() shows; `layout_b=\"column_major\"` says that B is\n"
      "stored by columns, as torch.nn.Linear's weight is. ValueError for what cannot be read; whether\n"
      "kernels can serve it is seen when it is used.",
      nb::is_weak_referenceable())
      .def(
          "__init__",
          [](Problem* self, nb::handle text_or_m, nb::handle n, nb::handle k, const nb::kwargs& fields) {
            std::string text;
            if (PyUnicode_Check(text_or_m.ptr())) {
              if (!n.is_none() || !k.is_none()) throw nb::type_error("a text says all sizes; pass either it or three");
              text = nb::cast<std::string>(text_or_m);
            } else {
              text = size_word("m", text_or_m) + size_word("n", n) + size_word("k", k);
            }
            for (const auto [key, value] : fields) text += field_word(nb::cast<std::string>(key), value);
            new (self) Problem(parse_problem(text));
          },
          "text_or_m"_a, "n"_a = nb::none(), "k"_a = nb::none(), "fields"_a,
          nb::sig("def __init__(self, text_or_m: str | int, n: int | None = None, k: int | None = None, **fields: "
                  "object) -> None"))
      .def_ro("m", &Problem::m)
      .def_ro("n", &Problem::n)
      .def_ro("k", &Problem::k)
      .def_ro("batch", &Problem::batch)
      .def("__str__", [](const Problem& problem) { return to_string(problem); })
      .def("__repr__", [](const Problem& problem) { return "jitgemm.Problem(\"" + to_string(problem) + "\")"; })
      .def(
          "__eq__",
          [](const Problem& left, nb::handle right) {
            Problem* other = nullptr;
            return nb::try_cast<Problem*>(right, other) && other && to_string(left) == to_string(*other);
          },
          nb::is_operator(), nb::arg().none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const Problem& problem) { return std::hash<std::string>()(to_string(problem)); })
      .def("__reduce__", [](const Problem& problem) {
        return nb::make_tuple(nb::type<Problem>(), nb::make_tuple(to_string(problem)));
      });
}

}  // namespace jitgemm::python
