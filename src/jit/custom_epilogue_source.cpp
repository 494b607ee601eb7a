#include "jit/custom_epilogue_source.hpp"

#include "core/data_types.hpp"
#include "core/epilogue_function.hpp"
#include "jit/template_values.hpp"

namespace jitgemm {
namespace {

std::string device_type(DataType type) { return std::string(info_of(type).device_name); }

std::string members(const EpilogueFunction& function, bool outputs, DataType compute) {
  std::string text;
  for (const EpilogueOperand& operand : function.operands)
    if (operand.output == outputs) text += "  " + device_type(compute) + " " + operand.name + ";\n";
  return text;
}

/// Calls visit(EpilogueOperand, member) for each.
std::string visits(const EpilogueFunction& function, bool outputs) {
  std::string text;
  for (std::size_t i = 0; i < function.operands.size(); ++i) {
    const auto& [name, shape, element, output] = function.operands[i];
    if (output != outputs) continue;
    const std::string in_memory = shape == OperandShape::scalar ? "void" : device_type(element);
    text += "    visit(EpilogueOperand<" + std::to_string(i) + ", OperandShape::" + std::string(to_string(shape)) +
            ", " + in_memory + ">{}, &" + (outputs ? "Out" : "Args") + "::" + name + ");\n";
  }
  return text;
}

TemplateValues values_of(const EpilogueFunction& function, DataType compute) {
  const bool pairs = function.pairs != Pairing::none;
  const std::string type = device_type(compute);
  return {{"activation_gradients.cuh", template_file("activation_gradients.cuh")},
          {"custom_epilogue_text.cuh", template_file("custom_epilogue_text.cuh")},
          {"compute", type},
          {"parameters", pairs ? type + " gate, " + type + " up" : type + " x"},
          {"sums", pairs ? "gate, up" : "x"},
          {"inputs", members(function, false, compute)},
          {"outputs", members(function, true, compute)},
          {"code", function.code},
          {"code_line", std::to_string(first_code_line(function))},
          {"visit_inputs", visits(function, false)},
          {"visit_outputs", visits(function, true)}};
}

}  // namespace

std::string custom_epilogue_source(const EpilogueFunction& function, DataType compute) {
  const TemplateValues values = values_of(function, compute);
  return fill_in("custom_epilogue_text.cu.in", values) + fill_in("custom_epilogue.cu.in", values);
}

std::string custom_epilogue_alone(const EpilogueFunction& function, DataType compute) {
  TemplateValues values = values_of(function, compute);
  values.insert({{"types.cuh", template_file("types.cuh")},
                 {"ptx", text_of({"math"}, "ptx/")},
                 {"activation.cuh", template_file("activation.cuh")}});
  values["text"] = fill_in("custom_epilogue_text.cu.in", values);
  return fill_in("custom_epilogue_alone.cu.in", values);
}

}  // namespace jitgemm
