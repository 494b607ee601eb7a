#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdio>

#include "bindings.hpp"
#include "core/epilogue_function.hpp"
#include "epilogue.hpp"

namespace jitgemm::python {
namespace {

using namespace nb::literals;

/// "in residual matrix bf16", as its line has it.
std::string line_of(const EpilogueOperand& operand) {
  std::string line = (operand.output ? "out " : "in ") + operand.name + " " + std::string(to_string(operand.shape));
  if (operand.shape != OperandShape::scalar) line += " " + std::string(to_string(operand.type));
  return line;
}

}  // namespace

void bind_epilogue(nb::module_& module) {
  nb::class_<EpilogueOperand>(module, "EpilogueOperand", "What an Epilogue reads or writes beside the product.")
      .def_ro("name", &EpilogueOperand::name)
      .def_prop_ro(
          "shape", [](const EpilogueOperand& operand) { return std::string(to_string(operand.shape)); },
          "scalar, along_m (a value a row), along_n (a value a column), or matrix.")
      .def_prop_ro(
          "type",
          [](const EpilogueOperand& operand) -> nb::object {
            if (operand.shape == OperandShape::scalar) return nb::none();
            return nb::cast(std::string(to_string(operand.type)));
          },
          nb::sig("def type(self) -> str | None"), "In memory: \"f16\" for instance; of a scalar None.")
      .def_prop_ro(
          "direction", [](const EpilogueOperand& operand) { return operand.output ? "out" : "in"; }, "in or out.")
      .def("__repr__",
           [](const EpilogueOperand& operand) { return "jitgemm.EpilogueOperand(" + line_of(operand) + ")"; });

  nb::class_<EpilogueObject>(
      module, "Epilogue",
      R"(A function of your own from each sum to an element of the result, compiled into the kernel.

    double_relu = jitgemm.Epilogue('''\
    // operand in residual matrix bf16
    // operand in limit scalar
    // operand out before matrix bf16
    __device__ float epilogue(float x, const Args& args, Out& out) {
      out.before = x;
      return fminf(fmaxf(x, 0), args.limit) + args.residual;
    }''')
    d, outputs = jitgemm.matmul(a, b, epilogue=double_relu, operands={"residual": r, "limit": 6.0})
    outputs["before"]

The text is a line for each operand, 8 at most, then CUDA C++. An operand is `in` or `out`; a `scalar`, `along_m`
(a value a row), `along_n` (a value a column) or a `matrix` of the result's shape, which outputs are; and f16, bf16
or f32 in memory, scalars apart. x is alpha * (a @ b), times scale_a and scale_b, in float; products of float64 have
double x and f64 operands, those of int8 int x and s32 operands. What is returned is rounded to the result's type.
args has the inputs by name, and as int row, column and batch: of the last two dimensions of the result, and the
number of the matrix, all leading dimensions counted through. out has the outputs.

A gated product has a first line `// pairs halves` or `// pairs neighbours`, and a function of two sums,
`float epilogue(float gate, float up, const Args& args, Out& out)`: of columns j and N / 2 + j of the product, or 2j
and 2j + 1. The result, and with it matrices and values a column, is N / 2 wide, and N even.

The function must be pure. It may call <math.h>'s functions of float and double, of which the emulator's and a
GPU's differ in the last places, and helper functions that begin with __device__. What cannot be used is refused
here, as ValueError with the line; operands of types that do not go with those of a and b when it is called; and what
does not compile when it is first called, as RuntimeError with the compiler's words in `log`. The text is code: take it
from whom you trust. The emulator runs it in this process, which an integer division by zero, say, ends.
jitgemm.epilogues has some to begin with.

Make one once: each text is kept for the life of the process, so what varies should be a scalar.)",
      nb::is_weak_referenceable())
      .def(
          "__init__",
          [](EpilogueObject* self, nb::handle text) {
            if (!PyUnicode_Check(text.ptr()))
              throw nb::type_error("text is no string; pass the lines of operands and the function as one");
            new (self) EpilogueObject(nb::cast<std::string_view>(text));
          },
          nb::arg("text").none(), nb::sig("def __init__(self, text: str) -> None"))
      .def_prop_ro("text", &EpilogueObject::text)
      .def_prop_ro("digest", &EpilogueObject::digest,
                   "The same for the same text in every process. Problem(..., epilogue=digest) has it.")
      .def_prop_ro("operands", &EpilogueObject::operands, "In the order of the text.")
      .def_prop_ro(
          "pairs",
          [](const EpilogueObject& self) -> nb::object {
            if (self.pairs() == Pairing::none) return nb::none();
            return nb::cast(std::string(to_string(self.pairs())));
          },
          nb::sig("def pairs(self) -> str | None"),
          "\"halves\" or \"neighbours\": columns of the product that are one of the result; else None.")
      .def("__repr__",
           [](const EpilogueObject& self) {
             std::string operands;
             for (const EpilogueOperand& operand : self.operands())
               operands += (operands.empty() ? "" : ", ") + line_of(operand);
             char digest[17];
             std::snprintf(digest, sizeof digest, "%016llx", static_cast<unsigned long long>(self.digest()));
             return "<jitgemm.Epilogue " + std::string(digest) + (operands.empty() ? "" : ": " + operands) + ">";
           })
      .def(
          "__eq__",
          [](const EpilogueObject& left, nb::handle right) {
            EpilogueObject* other = nullptr;
            return nb::try_cast<EpilogueObject*>(right, other) && other && left.text() == other->text();
          },
          nb::is_operator(), nb::arg().none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const EpilogueObject& self) { return std::hash<std::uint64_t>()(self.digest()); })
      .def("__reduce__", [](const EpilogueObject& self) {
        return nb::make_tuple(nb::type<EpilogueObject>(), nb::make_tuple(self.text()));
      });
}

}  // namespace jitgemm::python
