#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/typing.h>

#include "bindings.hpp"
#include "collected.hpp"
#include "grouped.hpp"
#include "operation.hpp"
#include "settings.hpp"
#include "torch_way.hpp"

namespace jitgemm::python {
namespace {

using namespace nb::literals;

/// Arguments that all functions share that take arrays as matmul() does.
#define JITGEMM_MATMUL_ARGUMENTS                                                                           \
  nb::kw_only(), "c"_a = nb::none(), "alpha"_a.none() = 1.0, "beta"_a = nb::none(), "bias"_a = nb::none(), \
                 "activation"_a = nb::none(), "slope"_a.none() = 0.01, "out"_a = nb::none(),               \
                 "out_dtype"_a = nb::none(), "precision"_a = nb::none(), "accumulation"_a = nb::none(),    \
                 "scale_a"_a = nb::none(), "scale_b"_a = nb::none(), "scale_d"_a = nb::none(),             \
                 "config"_a = nb::none(), "stream"_a = nb::none(), "context"_a = nb::none(),               \
                 "epilogue"_a = nb::none(), "operands"_a = nb::none()
#define JITGEMM_MATMUL_SIGNATURE                                                                             \
  "*, c: Array | None = None, alpha: float = 1.0, beta: float | None = None, bias: Array | None = None, "    \
  "activation: str | None = None, slope: float = 0.01, out: Array | None = None, out_dtype: object = None, " \
  "precision: str | None = None, accumulation: str | None = None, scale_a: Array | float | None = None, "    \
  "scale_b: Array | float | None = None, scale_d: Array | None = None, config: str | None = None, "          \
  "stream: object = None, context: Context | None = None, epilogue: Epilogue | str | None = None, "          \
  "operands: dict[str, Array | float] | None = None"

/// A function of MatmulArguments as one of what Python passes.
template <typename Result, typename Function>
auto taking_arguments(Function function) {
  return
      [function](nb::handle a, nb::handle b, nb::handle c, nb::handle alpha, nb::handle beta, nb::handle bias,
                 nb::handle activation, nb::handle slope, nb::handle out, nb::handle out_dtype, nb::handle precision,
                 nb::handle accumulation, nb::handle scale_a, nb::handle scale_b, nb::handle scale_d, nb::handle config,
                 nb::handle stream, nb::handle context, nb::handle epilogue, nb::handle operands) -> Result {
        return function(MatmulArguments{a,       b,         c,          number_of(alpha, "alpha"),
                                        beta,    bias,      activation, number_of(slope, "slope"),
                                        out,     out_dtype, precision,  accumulation,
                                        scale_a, scale_b,   scale_d,    config,
                                        stream,  context,   epilogue,   operands});
      };
}

/// torch.compile can be told what stands for a function of Python's own kind, which nanobind's are not. So the two that
/// it meets are called by way of one.
template <int>
PyObject* call_through(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
template <int>
PyObject* callee = nullptr;  // held for ever
template <int Index>
PyObject* call_through(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  return PyObject_Vectorcall(callee<Index>, arguments, std::size_t(count), names);
}
template <int Index>
nb::object builtin(nb::object function, const char* name) {
  static const std::string doc = nb::cast<std::string>(function.attr("__doc__"));
  callee<Index> = function.release().ptr();
  static PyMethodDef definition{name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call_through<Index>)),
                                METH_FASTCALL | METH_KEYWORDS, doc.c_str()};
  return nb::steal(PyCFunction_NewEx(&definition, nullptr, nb::str("jitgemm").ptr()));
}

/// What explain() and source() were asked about: a Problem, its text, or arrays.
struct Asked {
  Problem problem;
  std::optional<KernelConfig> config;
  ContextHandle* context;
};

Asked asked_of(const MatmulArguments& it) {
  Problem* problem = nullptr;
  const bool text = PyUnicode_Check(it.a.ptr());
  if (!text && !(nb::try_cast<Problem*>(it.a, problem) && problem)) {
    if (it.b.is_none()) throw nb::type_error("b is missing; pass two arrays, or a Problem");
    const PreparedMatmul prepared(it, PreparedMatmul::Purpose::describe);
    return {prepared.product().problem, prepared.config(), &prepared.context()};
  }
  const MatmulArguments none;
  for (const auto& [value, name] : {std::pair{it.b, "b"},
                                    {it.c, "c"},
                                    {it.beta, "beta"},
                                    {it.bias, "bias"},
                                    {it.activation, "activation"},
                                    {it.out, "out"},
                                    {it.out_dtype, "out_dtype"},
                                    {it.precision, "precision"},
                                    {it.accumulation, "accumulation"},
                                    {it.scale_a, "scale_a"},
                                    {it.scale_b, "scale_b"},
                                    {it.scale_d, "scale_d"},
                                    {it.stream, "stream"},
                                    {it.epilogue, "epilogue"},
                                    {it.operands, "operands"},
                                    {nb::handle(it.alpha == none.alpha ? Py_None : Py_True), "alpha"},
                                    {nb::handle(it.slope == none.slope ? Py_None : Py_True), "slope"}})
    if (!value.is_none())
      throw nb::type_error((std::string(name) + " is given beside a Problem, which says all but config and context; "
                                                "make it a field of the Problem, or pass arrays")
                               .c_str());
  Asked asked{text ? parse_problem(nb::cast<std::string>(it.a)) : *problem, config_of(it.config), nullptr};
  if (it.context.is_none())
    asked.context = &default_context({.cuda = !cuda_devices().empty()});
  else if (!nb::try_cast<ContextHandle*>(it.context, asked.context) || !asked.context)
    throw nb::type_error("context is no jitgemm.Context; leave it out for the default one");
  return asked;
}

}  // namespace

void bind_matmul(nb::module_& module) {
  module.attr("Array") = nb::type_var("Array");
  module.def("matmul", taking_arguments<nb::object>(&matmul), nb::arg("a").none(), nb::arg("b").none(),
             JITGEMM_MATMUL_ARGUMENTS,
             nb::sig("def matmul(a: Array, b: Array, " JITGEMM_MATMUL_SIGNATURE ") -> typing.Any"),
             R"(activation(alpha * scale_a * scale_b * (a @ b) + beta * c + bias), by torch.matmul's rules of shapes.

a, b       arrays of one framework that speaks DLPack, on one device: (..., M, K) and (..., K, N), or vectors;
           leading dimensions broadcast. float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2, int8.
           Transposed views and strided batches are read as they lie; what is contiguous in neither of its last
           two dimensions is copied first.
c          of the result's shape; beta is 1 where it is given and not said otherwise. By columns where out is.
bias       (N,), or (M, 1) for one value a row. c and bias have the result's type; bfloat16 with 8-bit floats.
activation relu, leaky_relu (with slope), gelu (that is gelu_erf), gelu_tanh, silu. NaN goes through, and gelu_tanh
           and silu of -inf are NaN.
out        the result; made where it is not given. It may be c, and overlap no other array.
out_dtype  default: a's type; bfloat16 for 8-bit floats, int32 for int8.
precision  of float32: "ieee" (default, torch tensors: torch.get_float32_matmul_precision()) or "tf32".
accumulation  of 8-bit floats: "fast" or "promoted".
scale_a, scale_b  of 8-bit floats, and of int8 with a floating-point result: one float32, for which a number will do,
           or float32 vectors where a and b are matrices: scale_a (M,) or (M, 1), one a row of a, and scale_b (N,)
           or (1, N), one a column of b. Both of 8-bit floats may also have one for each 128 of k, of each row or 128:
           scale_a (M, K / 128) or (M / 128, K / 128), scale_b (K / 128, N) or (K / 128, N / 128), rounded up; of a
           weight's transpose the transpose of its scales. Kernels read them where they are, and block_scales()
           makes what they can read.
scale_d    one float32, of a result in 8 bits.
config     a configuration to use instead of the chosen one: what Plan.config says.
stream     of CUDA arrays: a handle, or an object that has one; default: their framework's current one. Another waits
           for that one where the result is made here, unless a graph captures one of them. As with torch's own
           operators, memory that is used on another stream must not be freed before it is done.
context    default: the one of the arrays' device.
epilogue   an Epilogue, or its text: a function of your own in the place of c, bias and activation.
operands   the epilogue's, by name: arrays and, for scalars, numbers. Matrices are of the result's shape, those that are
           read may broadcast in their leading dimensions, and rows are contiguous; along_m is (M,) or (..., M, 1),
           along_n (N,) or (..., 1, N). Types are as the epilogue describes them. Outputs that are not given are made.

Returns the result. Only with an epilogue that has outputs it is a pair, the result and a dict of all outputs by
name, those that were given among them. Such products have no gradients: tensors that require them are refused
outside torch.no_grad() and an autograd.Function's own methods.

Asynchronous on CUDA devices; the CPU is an emulator. ValueError and TypeError for what does not go together;
RuntimeError for what the device or the compiler refuses, with the attributes code, problem, config, call, log.)");
  module.def(
      "linear",
      [](nb::handle x, nb::handle weight, nb::handle bias, nb::handle activation, nb::handle slope, nb::handle out,
         nb::handle out_dtype, nb::handle precision, nb::handle config, nb::handle stream, nb::handle context,
         nb::handle epilogue, nb::handle operands) {
        MatmulArguments arguments;
        arguments.a = x;
        arguments.b = weight;
        arguments.bias = bias;
        arguments.activation = activation;
        arguments.slope = number_of(slope, "slope");
        arguments.out = out;
        arguments.out_dtype = out_dtype;
        arguments.precision = precision;
        arguments.config = config;
        arguments.stream = stream;
        arguments.context = context;
        arguments.epilogue = epilogue;
        arguments.operands = operands;
        arguments.b_is_weight = true;
        return matmul(arguments);
      },
      nb::arg("x").none(), nb::arg("weight").none(), "bias"_a = nb::none(), nb::kw_only(), "activation"_a = nb::none(),
      "slope"_a.none() = 0.01, "out"_a = nb::none(), "out_dtype"_a = nb::none(), "precision"_a = nb::none(),
      "config"_a = nb::none(), "stream"_a = nb::none(), "context"_a = nb::none(), "epilogue"_a = nb::none(),
      "operands"_a = nb::none(),
      nb::sig("def linear(x: Array, weight: Array, bias: Array | None = None, *, activation: str | None = None, "
              "slope: float = 0.01, out: Array | None = None, out_dtype: object = None, precision: str | None = "
              "None, config: str | None = None, stream: object = None, context: Context | None = None, epilogue: "
              "Epilogue | "
              "str | None = None, operands: dict[str, Array | float] | None = None) -> typing.Any"),
      "activation(x @ weight.T + bias): x (..., in), weight (out, in), bias (out,), as torch.nn.Linear has them.\n"
      "The other arguments are matmul's.");
  module.def(
      "grouped_mm",
      [](nb::handle a, nb::handle b, nb::handle offs, nb::handle bias, nb::handle out_dtype, nb::handle counts,
         nb::handle out, nb::handle scale_a, nb::handle scale_b, double beta, std::int64_t expected_m,
         nb::handle config, nb::handle stream, nb::handle context, nb::handle epilogue, nb::handle operands) {
        return grouped_mm({a, b, offs, bias, out_dtype, counts, out, scale_a, scale_b, beta, expected_m, config, stream,
                           context, epilogue, operands});
      },
      nb::arg("a").none(), nb::arg("b").none(), "offs"_a = nb::none(), "bias"_a = nb::none(),
      "out_dtype"_a = nb::none(), nb::kw_only(), "counts"_a = nb::none(), "out"_a = nb::none(),
      "scale_a"_a = nb::none(), "scale_b"_a = nb::none(), "beta"_a = 0.0, "expected_m"_a = 0, "config"_a = nb::none(),
      "stream"_a = nb::none(), "context"_a = nb::none(), "epilogue"_a = nb::none(), "operands"_a = nb::none(),
      nb::sig("def grouped_mm(a: Array, b: Array | MatrixPointers, offs: Array | None = None, bias: Array | None = "
              "None, out_dtype: "
              "object = None, *, counts: Array | None = None, out: Array | None = None, scale_a: Array | None = None, "
              "scale_b: Array | None = None, beta: float = 0.0, expected_m: int = 0, config: str | None = None, "
              "stream: object = None, context: Context | None = None, epilogue: Epilogue | str | None = None, "
              "operands: dict[str, Array | float] | None = None) -> Array | tuple[Array, dict[str, Array]]"),
      R"(a[rows of group g] @ b[g] for each group, as torch's grouped_mm: mixture-of-experts layers.

a, b       (M, K) and (groups, K, N); a's rows lie contiguous, and b's matrices or their transposes do. Or (M, K) and
           (K, N), of which each group has some of K, as gradients of weights do: a[:, its k] @ b[its k] for each.
           Matrices that lie apart are MatrixPointers of (K, N) each.
offs       int32 on the arrays' device: the row, or k, at which each group ends and the next one begins. Any number of
           them, none too; they are read when the kernel runs, so that a captured graph may be replayed with others.
bias       (N,), the same for all groups, of the result's type.
counts     in place of offs: a is (groups, M, K), of which each group has as many rows as its int32 says.
out        the result, (M, N) or (groups, M, N), along k of all groups. Rows that are no group's are left as they are;
           of one that is made here they mean nothing.
beta       adds beta * out as it was.
scale_a, scale_b  of 8-bit floats: one float32, or (M,) and (groups, N), with counts (groups, M) and (groups, N). Or
           one for each 128 of k, rounded up: (M, K / 128), with counts (groups, M, K / 128), and (groups, K / 128,
           N / 128) or (groups, K / 128, N), laid out as block_scales() has them, of the weights (groups, N, K).
           Along k one, or (M,) and (N,).
expected_m rows that a group is expected to have, which decides what runs; 0: as many as if all had the same.
epilogue   as matmul's, in the place of bias and beta; of pairs out has N / 2 columns. args.row is the row of a and
           args.batch the group.
operands   as matmul's. A value a row is (M,), with counts (groups, M); a value a column (N,), or (groups, N) where each
           group has its own; a matrix is as out.

Of torch's tensors with offs there are gradients for a, b (with MatrixPointers each matrix's own) and bias. Context.check()
says whether offs or counts were out of range, or a matrix had no memory; nothing beside the result is ever written.)");
  module.attr("_matmul") = builtin<0>(module.attr("matmul"), "matmul");
  module.attr("_linear") = builtin<1>(module.attr("linear"), "linear");
  module.def(
      "compute",
      [](nb::handle a, nb::handle b, nb::handle c, nb::handle bias, double alpha, double beta,
         std::string_view activation, double slope, nb::handle out_dtype, std::string_view precision,
         std::string_view accumulation, nb::handle scale_a, nb::handle scale_b, nb::handle scale_d,
         std::string_view config, nb::handle out) {
        const auto given = [](std::string_view text) -> nb::object {
          if (text.empty()) return nb::none();
          return nb::str(text.data(), text.size());
        };
        const nb::object beta_given = nb::float_(beta), activation_given = given(activation),
                         precision_given = given(precision), accumulation_given = given(accumulation),
                         config_given = given(config);
        return compute({a, b, c, alpha, beta_given, bias, activation_given, slope, out, out_dtype, precision_given,
                        accumulation_given, scale_a, scale_b, scale_d, config_given});
      },
      nb::arg("a"), nb::arg("b"), "c"_a.none(), "bias"_a.none(), "alpha"_a, "beta"_a, "activation"_a, "slope"_a,
      "out_dtype"_a.none(), "precision"_a, "accumulation"_a, "scale_a"_a.none(), "scale_b"_a.none(), "scale_d"_a.none(),
      "config"_a, "out"_a = nb::none(),
      "matmul() without a look at torch's modes and gradients, by the arguments of its operators: texts that are not\n"
      "given are empty.");
  module.def(
      "dtype_name", [](nb::handle dtype) { return name_of(data_type_of(dtype, "out_dtype")); }, "dtype"_a,
      "A type as NumPy and torch name it.");
  module.def(
      "explain", taking_arguments<std::string>([](const MatmulArguments& it) {
        const Asked asked = asked_of(it);
        return plan_of(*asked.context, asked.problem, asked.config, false).explain();
      }),
      nb::arg("a").none(), "b"_a = nb::none(), JITGEMM_MATMUL_ARGUMENTS,
      nb::sig("def explain(a: Array | Problem | str, b: Array | None = None, " JITGEMM_MATMUL_SIGNATURE ") -> str"),
      "Which configuration matmul() would run for these arguments, and why. Also of a Problem or its text.");
  module.def(
      "source", taking_arguments<std::string>([](const MatmulArguments& it) {
        const Asked asked = asked_of(it);
        return source_of(*asked.context, asked.problem, asked.config);
      }),
      nb::arg("a").none(), "b"_a = nb::none(), JITGEMM_MATMUL_ARGUMENTS,
      nb::sig("def source(a: Array | Problem | str, b: Array | None = None, " JITGEMM_MATMUL_SIGNATURE ") -> str"),
      "The source of the kernel that matmul() would run for these arguments. Also of a Problem or its text.");

  const auto execute = [](Matmul& self, nb::handle a, nb::handle b, nb::handle c, nb::handle bias, nb::handle out,
                          nb::handle scale_a, nb::handle scale_b, nb::handle scale_d, nb::handle stream,
                          nb::handle operands) {
    return self.execute({a, b, c, bias, out, scale_a, scale_b, scale_d, operands}, stream);
  };
#define JITGEMM_EXECUTE_ARGUMENTS                                                                     \
  "a"_a = nb::none(), "b"_a = nb::none(), nb::kw_only(), "c"_a = nb::none(), "bias"_a = nb::none(),   \
  "out"_a = nb::none(), "scale_a"_a = nb::none(), "scale_b"_a = nb::none(), "scale_d"_a = nb::none(), \
  "stream"_a = nb::none(), "operands"_a = nb::none()
#define JITGEMM_EXECUTE_SIGNATURE                                                                                  \
  "(self, a: Array | None = None, b: Array | None = None, *, c: Array | None = None, bias: Array | None = None, "  \
  "out: Array | None = None, scale_a: Array | None = None, scale_b: Array | None = None, scale_d: Array | None = " \
  "None, stream: object = None, operands: dict[str, Array | float] | None = None) -> typing.Any"
  nb::class_<Matmul>(
      module, "Matmul", nb::type_slots(collected_slots<Matmul>),
      "A product to be computed again and again: arguments are matmul()'s, and shapes, strides and types\n"
      "stay. Call it with other arrays of the same form; those that are left out stay those that it was\n"
      "made with. So do an epilogue's operands; other numbers for its scalars cost nothing. What matmul()\n"
      "copies, arrays contiguous in neither of their last two dimensions, is refused.\n\n"
      "    product = jitgemm.Matmul(a, b, bias=bias, activation=\"gelu\")\n"
      "    product.tune()            # once; measures, and remembers on disk\n"
      "    d = product(a, b)\n"
      "    product(a, b, out=d)")
      .def(
          "__init__",
          [](Matmul* self, nb::handle a, nb::handle b, nb::handle c, nb::handle alpha, nb::handle beta, nb::handle bias,
             nb::handle activation, nb::handle slope, nb::handle out, nb::handle out_dtype, nb::handle precision,
             nb::handle accumulation, nb::handle scale_a, nb::handle scale_b, nb::handle scale_d, nb::handle config,
             nb::handle stream, nb::handle context, nb::handle epilogue, nb::handle operands) {
            new (self) Matmul(MatmulArguments{a,       b,         c,          number_of(alpha, "alpha"),
                                              beta,    bias,      activation, number_of(slope, "slope"),
                                              out,     out_dtype, precision,  accumulation,
                                              scale_a, scale_b,   scale_d,    config,
                                              stream,  context,   epilogue,   operands});
          },
          nb::arg("a").none(), nb::arg("b").none(), JITGEMM_MATMUL_ARGUMENTS,
          nb::sig("def __init__(self, a: Array, b: Array, " JITGEMM_MATMUL_SIGNATURE ") -> None"))
      .def("__call__", execute, JITGEMM_EXECUTE_ARGUMENTS, nb::sig("def __call__" JITGEMM_EXECUTE_SIGNATURE),
           "The result, or out; with an epilogue what matmul() returns. Has no gradients.")
      .def("execute", execute, JITGEMM_EXECUTE_ARGUMENTS, nb::sig("def execute" JITGEMM_EXECUTE_SIGNATURE),
           "The result, or out; with an epilogue what matmul() returns. Has no gradients.")
      .def(
          "plan",
          [](Matmul& self, const std::optional<std::string>& config) {
            if (config) self.pin(parse_kernel_config(*config));
            return plan_of(self.context(), self.product().problem, self.config(), true);
          },
          "config"_a = nb::none(), "What runs, once it is compiled; `config` pins it.")
      .def(
          "tune",
          [](Matmul& self, nb::handle progress) { return tune(self.context(), self.product().problem, progress); },
          "progress"_a = nb::none(),
          nb::sig("def tune(self, progress: bool | collections.abc.Callable[[int, int], None] | None = None) -> "
                  "TuneReport"),
          "Measures candidates now; later calls run the winner. progress: True shows a bar.")
      .def("explain",
           [](Matmul& self) { return plan_of(self.context(), self.product().problem, self.config(), false).explain(); })
      .def("source", [](Matmul& self) { return source_of(self.context(), self.product().problem, self.config()); })
      .def_prop_ro("problem", [](Matmul& self) { return self.product().problem; });
}

}  // namespace jitgemm::python
