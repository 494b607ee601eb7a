#include "torch_way.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "imported.hpp"
#include "settings.hpp"
#include "torch_state.hpp"

namespace jitgemm::python {
namespace {

bool requires_grad(nb::handle tensor) {
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  const nb::object answer = nb::steal(PyObject_GetAttr(tensor.ptr(), name));
  if (!answer.is_valid()) throw nb::python_error();
  return answer.is(nb::handle(Py_True));
}

nb::object by_operators(const MatmulArguments& arguments) {
  static constinit Imported matmul("jitgemm.torch", "matmul"), linear("jitgemm.torch", "linear");
  nb::dict keywords;
  const auto pass = [&](const char* name, nb::handle value) {
    if (!value.is_none()) keywords[name] = value;
  };
  pass("bias", arguments.bias);
  pass("activation", arguments.activation);
  keywords["slope"] = arguments.slope;
  pass("out", arguments.out);
  pass("out_dtype", arguments.out_dtype);
  pass("precision", arguments.precision);
  pass("config", arguments.config);
  pass("stream", arguments.stream);
  pass("context", arguments.context);
  if (arguments.b_is_weight) return (*linear)(arguments.a, arguments.b, **keywords);
  pass("c", arguments.c);
  keywords["alpha"] = arguments.alpha;
  pass("beta", arguments.beta);
  pass("accumulation", arguments.accumulation);
  pass("scale_a", arguments.scale_a);
  pass("scale_b", arguments.scale_b);
  pass("scale_d", arguments.scale_d);
  return (*matmul)(arguments.a, arguments.b, **keywords);
}

nb::object recorded(const MatmulArguments& it) {
  static constinit Imported function("jitgemm.torch", "_recorded");
  return (*function)(it.a, it.b, it.c, it.alpha, it.beta, it.bias, it.activation, it.slope, it.out, it.out_dtype,
                     it.precision, it.accumulation, it.scale_a, it.scale_b, it.scale_d, it.config, it.stream,
                     it.context, it.b_is_weight);
}

}  // namespace

Way way_of(const MatmulArguments& it) {
  const std::array arrays{it.a, it.b, it.c, it.bias, it.out, it.scale_a, it.scale_b, it.scale_d};
  constexpr std::array names{"a", "b", "c", "bias", "out", "scale_a", "scale_b", "scale_d"};
  constexpr std::size_t first_scale = 5;
  std::array<nb::handle, arrays.size()> tensors;
  std::size_t count = 0, epilogue_tensors = 0;
  bool subclass = false, of_epilogue = false;
  for_each_operand_array(it.operands, [&](nb::handle array, const std::string& name) {
    const ArrayType& type = array_type(array, ("operand " + name).c_str());
    if (!type.is_torch()) return;
    subclass = subclass || type.kind == ArrayType::Kind::torch_subclass;
    of_epilogue = of_epilogue || requires_grad(array);
    ++epilogue_tensors;
  });
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].is_none() || (i >= first_scale && is_number(arrays[i]))) continue;
    const ArrayType& type = array_type(arrays[i], names[i]);
    subclass = subclass || type.kind == ArrayType::Kind::torch_subclass;
    if (type.is_torch()) tensors[count++] = arrays[i];
  }
  if (count + epilogue_tensors == 0) return Way::direct;
  const TorchState state = torch_state();
  if (subclass) return Way::operators;
  if (!state.known) return Way::unknown;
  if (state.watched) return Way::operators;
  if (state.autocast) return Way::recorded;
  if (!state.gradients) return Way::direct;
  return of_epilogue || std::any_of(tensors.begin(), tensors.begin() + count, requires_grad) ? Way::recorded
                                                                                             : Way::direct;
}

bool requires_gradient(const Array& array) { return array.type().is_torch() && requires_grad(array.object()); }

bool records_gradients() {
  if (!knows_torch()) return false;
  const TorchState state = torch_state();
  if (state.known && state.watched)
    throw std::runtime_error(
        "Matmul computes past torch's operators, which something here looks at (torch.func, a mode, a "
        "trace, forward-mode gradients); call jitgemm.matmul");
  return state.gradients;
}

MatmulArguments past_torch(const MatmulArguments& it, const char* what, nb::object& cast) {
  const Way way = way_of(it);
  if (way == Way::operators) {
    throw std::runtime_error(std::string(what) +
                             " is computed past torch's operators, which something here looks at (torch.func, a mode, "
                             "a trace, a subclass of "
                             "Tensor, forward-mode gradients); call it outside of that");
  }
  if (way == Way::direct) return it;
  static constinit Imported prepared("jitgemm.torch", "_prepared");
  cast = (*prepared)(what, it.a, it.b, it.c, it.bias, it.out, it.scale_a, it.scale_b, it.scale_d, it.operands);
  MatmulArguments result = it;
  result.a = cast[0].ptr();
  result.b = cast[1].ptr();
  for (const auto& [made, given] : {std::pair{result.a, it.a}, std::pair{result.b, it.b}})
    if (!it.stream.is_none() && !made.is(given) && nb::cast<bool>(made.attr("is_cuda")))
      throw nb::value_error(
          "autocast would make a copy of a or b on another stream; pass both in autocast's type, or no stream");
  if (!result.a.is(it.a)) result.precision = Py_None;  // of the type that it was
  return result;
}

nb::object matmul(const MatmulArguments& arguments) {
  if (!arguments.epilogue.is_none()) {
    nb::object cast;
    return compute(past_torch(arguments, "a product with an epilogue of one's own", cast));
  }
  switch (way_of(arguments)) {
    case Way::operators:
    case Way::unknown:
      return by_operators(arguments);
    case Way::recorded:
      return recorded(arguments);
    case Way::direct:
      break;
  }
  try {
    return compute(arguments);
  } catch (const UnreadableTensor&) {
    return by_operators(arguments);
  }
}

}  // namespace jitgemm::python
