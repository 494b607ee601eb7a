#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "array.hpp"
#include "jitgemm/epilogue.hpp"
#include "product.hpp"

namespace jitgemm::python {

/// jitgemm.Epilogue: a function of the caller's own, known to this process.
class EpilogueObject {
 public:
  explicit EpilogueObject(std::string_view text);

  const std::string& text() const { return text_; }
  std::uint64_t digest() const { return digest_; }
  const std::vector<EpilogueOperand>& operands() const { return function_.operands; }
  Pairing pairs() const { return function_.pairs; }
  bool has_outputs() const;
  /// Whether its code says the word: if not, what the word stands for cannot matter.
  bool reads_row() const { return reads_row_; }
  bool reads_batch() const { return reads_batch_; }

 private:
  EpilogueFunction function_;
  std::string text_;
  std::uint64_t digest_;
  bool reads_row_, reads_batch_;
};

/// What a call gives for each operand of its epilogue.
class EpilogueCall {
 public:
  /// `epilogue` is jitgemm.Epilogue or its text; `operands` None or a dict. Throws TypeError, ValueError for what is
  /// missing, unknown, of another type or elsewhere.
  EpilogueCall(nb::handle epilogue, nb::handle operands, const Place& place, std::optional<std::intptr_t> stream);
  /// Another call of the same form: what `operands` leaves out is as before, but for outputs that were made.
  EpilogueCall(const EpilogueCall& before, nb::handle operands, const Place& place,
               std::optional<std::intptr_t> stream);
  EpilogueCall(const EpilogueCall&) = delete;
  EpilogueCall& operator=(const EpilogueCall&) = delete;

  const EpilogueObject& epilogue() const { return *epilogue_; }

  /// Makes the outputs that were not given, of the framework of `like`; without it only their form is known.
  void complete(const Array* like, const Shape& shape, std::optional<std::intptr_t> stream);
  /// Whether it has made one.
  bool has_made() const;
  /// What describe() is asked about; valid while this lives.
  EpilogueArrays arrays() const;
  /// One each, as they lie in the product.
  std::vector<EpilogueValue> values(const Product& product) const;

  /// Of torch's arrays, where gradients are recorded.
  bool requires_gradients() const;
  bool must_wait() const;
  /// What the caller gets once all is written: d, or (d, {name: output}).
  nb::object result(nb::object d, const Array& like) const;

  // See collected.hpp. The epilogue stays, which calls look at.
  template <typename Visit>
  void each_held(const Visit& visit) const {
    visit(kept_);
    for (const Operand& operand : operands_) {
      visit(operand.object);
      if (operand.array) visit(operand.array->keeper());
    }
  }
  void drop_held();

 private:
  struct Operand {
    const EpilogueOperand* described = nullptr;
    nb::object object;  // the array; null where there is none
    std::optional<Array> array;
    View view;
    double scalar = 0;
    bool made = false;
  };
  void load(nb::handle operands, const EpilogueCall* before, const Place& place, std::optional<std::intptr_t> stream);
  void load_array(Operand& operand, const Place& place, std::optional<std::intptr_t> stream);

  nb::object kept_;  // the jitgemm.Epilogue
  const EpilogueObject* epilogue_ = nullptr;
  std::vector<Operand> operands_;
};

/// Calls `look` with each array among the operands, and its name.
template <typename Look>
void for_each_operand_array(nb::handle operands, const Look& look) {
  if (!PyDict_Check(operands.ptr())) return;  // which EpilogueCall refuses
  for (const auto [name, value] : nb::borrow<nb::dict>(operands))
    if (nb::hasattr(value, "__dlpack__") || nb::hasattr(value, "__torch_function__"))
      look(value, nb::cast<std::string>(nb::str(name)));
}

}  // namespace jitgemm::python
