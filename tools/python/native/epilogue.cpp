#include "epilogue.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <utility>

#include "core/epilogue_function.hpp"
#include "matmul.hpp"
#include "new_arrays.hpp"
#include "settings.hpp"
#include "torch_state.hpp"
#include "torch_way.hpp"

namespace jitgemm::python {
namespace {

/// A comment counts too, which costs no more than speed. So does "auto", by which a member can be had without its name.
bool says(std::string_view code, std::string_view word) {
  const auto continues_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  for (std::size_t at = code.find(word); at != code.npos; at = code.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !continues_word(code[at - 1])) && (end == code.size() || !continues_word(code[end]))) return true;
  }
  return false;
}

std::string names_of(const std::vector<EpilogueOperand>& operands) {
  std::string names;
  for (const EpilogueOperand& operand : operands) names += (names.empty() ? "" : ", ") + operand.name;
  return names.empty() ? "none" : names;
}

}  // namespace

EpilogueObject::EpilogueObject(std::string_view text)
    : function_(parse_epilogue(text)),
      text_(to_string(function_)),
      digest_(define_epilogue(function_)),
      reads_row_(says(function_.code, "row") || says(function_.code, "auto")),
      reads_batch_(says(function_.code, "batch") || says(function_.code, "auto")) {}

bool EpilogueObject::has_outputs() const { return std::ranges::any_of(function_.operands, &EpilogueOperand::output); }

EpilogueCall::EpilogueCall(nb::handle epilogue, nb::handle operands, const Place& place,
                           std::optional<std::intptr_t> stream) {
  EpilogueObject* given = nullptr;
  if (PyUnicode_Check(epilogue.ptr())) {
    kept_ = nb::type<EpilogueObject>()(epilogue);
  } else {
    kept_ = nb::borrow(epilogue);
  }
  if (!nb::try_cast<EpilogueObject*>(kept_, given) || !given)
    throw nb::type_error("epilogue is no jitgemm.Epilogue; pass one, or its text");
  epilogue_ = given;
  load(operands, nullptr, place, stream);
}

EpilogueCall::EpilogueCall(const EpilogueCall& before, nb::handle operands, const Place& place,
                           std::optional<std::intptr_t> stream)
    : kept_(before.kept_), epilogue_(before.epilogue_) {
  load(operands, &before, place, stream);
}

void EpilogueCall::load(nb::handle operands, const EpilogueCall* before, const Place& place,
                        std::optional<std::intptr_t> stream) {
  const std::vector<EpilogueOperand>& described = epilogue_->operands();
  if (!operands.is_none() && !PyDict_Check(operands.ptr()))
    throw nb::type_error("operands is no dict; pass {name: array or number}");
  const nb::dict given = operands.is_none() ? nb::dict() : nb::borrow<nb::dict>(operands);
  for (const auto [name, value] : given) {
    const std::string text = nb::cast<std::string>(nb::str(name));
    if (std::ranges::find(described, text, &EpilogueOperand::name) == described.end())
      throw nb::value_error(
          ("operands has \"" + text + "\", and the epilogue's are " + names_of(described) + "; leave it away").c_str());
  }
  operands_.resize(described.size());
  for (std::size_t i = 0; i < described.size(); ++i) {
    Operand& operand = operands_[i];
    operand.described = &described[i];
    const std::string& name = described[i].name;
    const nb::object value = given.get(nb::str(name.data(), name.size()), nb::none());
    const Operand* const old = before ? &before->operands_[i] : nullptr;
    if (described[i].shape == OperandShape::scalar) {
      if (!value.is_none())
        operand.scalar = number_of(value, ("operand " + name).c_str());
      else if (old)
        operand.scalar = old->scalar;
      else
        throw nb::value_error(("operand " + name + " is missing; pass operands={\"" + name + "\": a number}").c_str());
      continue;
    }
    operand.object = !value.is_none() ? value : old ? old->object : nb::object();
    if (operand.object.is_valid()) {
      load_array(operand, place, stream);
      if (old && !alike(operand.view, old->view))
        throw nb::value_error(("operand " + name + " is " + form_text(operand.view) + " where this Matmul has " +
                               form_text(old->view) + "; make another one")
                                  .c_str());
    } else if (!described[i].output) {
      throw nb::value_error(("operand " + name + " is missing; pass operands={\"" + name + "\": an array}").c_str());
    }
  }
}

void EpilogueCall::load_array(Operand& operand, const Place& place, std::optional<std::intptr_t> stream) {
  const EpilogueOperand& described = *operand.described;
  const std::string name = "operand " + described.name;
  if (PyFloat_Check(operand.object.ptr()) || PyLong_Check(operand.object.ptr()))
    throw nb::type_error((name + " is a number, and described as " + std::string(to_string(described.shape)) +
                          "; pass an array, or describe it as a scalar")
                             .c_str());
  operand.array.emplace(operand.object, name.c_str(), described.output, stream);
  operand.view = operand.array->view();
  if (operand.view.type != described.type)
    throw nb::type_error((name + " is of " + std::string(to_string(operand.view.type)) + ", and described as " +
                          std::string(to_string(described.type)) + "; convert it, or change its line in the epilogue")
                             .c_str());
  require_place(operand.array->place(), name, place);
}

void EpilogueCall::complete(const Array* like, const Shape& shape, std::optional<std::intptr_t> stream) {
  for (Operand& operand : operands_) {
    if (!operand.described->output || operand.object.is_valid()) continue;
    if (!like) {
      operand.view = contiguous_view(shape, operand.described->type);
      continue;
    }
    operand.object = empty_array(*like, shape, operand.described->type);
    operand.made = true;
    operand.array.emplace(operand.object, ("operand " + operand.described->name).c_str(), true, stream);
    operand.view = operand.array->view();
  }
}

bool EpilogueCall::has_made() const { return std::ranges::any_of(operands_, &Operand::made); }

EpilogueArrays EpilogueCall::arrays() const {
  EpilogueArrays arrays{{}, epilogue_->reads_row(), epilogue_->reads_batch()};
  for (const Operand& operand : operands_)
    arrays.operands.push_back(
        {operand.described, operand.described->shape == OperandShape::scalar ? nullptr : &operand.view});
  return arrays;
}

std::vector<EpilogueValue> EpilogueCall::values(const Product& product) const {
  std::vector<EpilogueValue> values(operands_.size());
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const Operand& operand = operands_[i];
    EpilogueValue& value = values[i];
    value.scalar = operand.scalar;
    if (operand.described->shape == OperandShape::scalar) continue;
    (operand.described->output ? value.out : const_cast<void*&>(value.in)) = operand.view.data;
    value.ld = product.epilogue[i].ld;
    value.stride = product.epilogue[i].stride;
  }
  return values;
}

bool EpilogueCall::requires_gradients() const {
  return std::ranges::any_of(operands_,
                             [](const Operand& operand) { return operand.array && requires_gradient(*operand.array); });
}

bool EpilogueCall::must_wait() const {
  return std::ranges::any_of(operands_, [](const Operand& operand) { return python::must_wait(operand.array); });
}

void EpilogueCall::drop_held() {
  std::vector<nb::object> dropped;
  std::vector<std::optional<Array>> arrays;
  for (Operand& operand : operands_) {
    dropped.push_back(std::move(operand.object));
    arrays.push_back(std::exchange(operand.array, std::nullopt));
  }
}

nb::object EpilogueCall::result(nb::object d, const Array& like) const {
  if (!epilogue_->has_outputs()) return d;
  nb::dict outputs;
  for (const Operand& operand : operands_) {
    if (!operand.described->output) continue;
    const nb::object array = operand.made ? finished_array(like, operand.object) : operand.object;
    if (!operand.made && operand.array->type().is_torch()) note_written(array);
    outputs[operand.described->name.c_str()] = array;
  }
  return nb::make_tuple(d, outputs);
}

}  // namespace jitgemm::python
