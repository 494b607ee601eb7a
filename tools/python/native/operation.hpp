#pragma once

#include <array>
#include <optional>
#include <string>

#include "matmul.hpp"

namespace jitgemm::python {

/// jitgemm.Matmul: a product whose arrays' shapes, strides and types stay, so that a call looks at pointers alone.
class Matmul {
 public:
  explicit Matmul(const MatmulArguments& arguments);

  /// The arrays of one call; those that are None are the ones before.
  struct Arrays {
    nb::handle a, b, c, bias, out, scale_a, scale_b, scale_d, operands;
  };
  nb::object execute(const Arrays& arrays, nb::handle stream);

  ContextHandle& context() const { return *context_; }
  const Product& product() const { return product_; }
  /// A copy: who uses it without Python's lock may meet pin() by another thread.
  std::optional<KernelConfig> config() const { return config_; }
  void pin(std::optional<KernelConfig> config) { config_ = std::move(config); }

  // See collected.hpp. The context stays, which has slots of its own.
  template <typename Visit>
  void each_held(const Visit& visit) const {
    visit(kept_context_);
    for (const nb::object& array : arrays_) visit(array);
    if (epilogue_) epilogue_->each_held(visit);
  }
  void drop_held();

 private:
  enum Role { role_a, role_b, role_c, role_bias, role_d, role_scale_a, role_scale_b, role_scale_d, roles };
  /// The pointer of an operand that is as it was when this was made; throws ValueError for another.
  void* pointer_of(Role role, nb::handle array, std::optional<std::intptr_t> stream, bool gradients,
                   std::optional<Array>& held) const;

  Product product_;
  std::optional<KernelConfig> config_;
  ContextHandle* context_;
  nb::object kept_context_;
  Place place_;
  Shape shape_;
  std::array<std::optional<View>, roles> views_;  // without their pointers
  std::array<nb::object, roles> arrays_;
  std::unique_ptr<EpilogueCall> epilogue_;  // with what was given
  bool is_cleared_ = false;                 // by drop_held()
};

}  // namespace jitgemm::python
