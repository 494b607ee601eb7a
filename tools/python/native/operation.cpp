#include "operation.hpp"

#include <algorithm>
#include <utility>

#include "new_arrays.hpp"
#include "operand_views.hpp"
#include "streams.hpp"
#include "torch_state.hpp"
#include "torch_way.hpp"

namespace jitgemm::python {
namespace {

constexpr std::array names{"a", "b", "c", "bias", "out", "scale_a", "scale_b", "scale_d"};

}  // namespace

Matmul::Matmul(const MatmulArguments& it) {
  PreparedMatmul prepared(it, PreparedMatmul::Purpose::describe);
  if (prepared.copy_a_ || prepared.copy_b_ || prepared.copy_c_ || prepared.copy_bias_)
    throw nb::value_error(
        "an array is contiguous in neither of its last two dimensions; pass contiguous ones, which Matmul does not "
        "copy");
  product_ = prepared.product();
  config_ = prepared.config();
  context_ = &prepared.context();
  kept_context_ = nb::borrow(it.context);
  place_ = prepared.place();
  const std::array<const std::optional<Array>*, roles> given{&prepared.a_,       &prepared.b_,      &prepared.c_,
                                                             &prepared.bias_,    &prepared.d_,      &prepared.scale_a_,
                                                             &prepared.scale_b_, &prepared.scale_d_};
  const std::array<nb::handle, roles> objects{it.a, it.b, it.c, it.bias, it.out, it.scale_a, it.scale_b, it.scale_d};
  for (std::size_t i = 0; i < roles; ++i) {
    if (!*given[i]) continue;
    views_[i] = (*given[i])->view();
    arrays_[i] = nb::borrow(objects[i]);
  }
  epilogue_ = std::move(prepared.epilogue_);
  shape_ = product_shape(*views_[role_a], *views_[role_b]);
  if (!views_[role_d]) views_[role_d] = contiguous_view(shape_, product_.problem.d.type);
}

void Matmul::drop_held() {
  is_cleared_ = true;
  const std::array<nb::object, roles> dropped = std::exchange(arrays_, {});
  if (epilogue_) epilogue_->drop_held();
}

void* Matmul::pointer_of(Role role, nb::handle array, std::optional<std::intptr_t> stream, bool gradients,
                         std::optional<Array>& held) const {
  const char* name = names[role];
  const std::optional<View>& expected = views_[role];
  if (array.is_none()) {
    if (!expected) return nullptr;
    if (role != role_d) array = arrays_[role];
  }
  if (!expected)
    throw nb::value_error((std::string(name) + " was not there when this Matmul was made; make another one").c_str());
  held.emplace(array, name, role == role_d, stream);
  if (!alike(held->view(), *expected))
    throw nb::value_error((std::string(name) + " is " + form_text(held->view()) + " where this Matmul has " +
                           form_text(*expected) + "; make another one")
                              .c_str());
  if (held->place() != place_)
    throw nb::value_error((std::string(name) + " is on " + to_string(held->place()) + ", and this Matmul's arrays on " +
                           to_string(place_) + "; make another one")
                              .c_str());
  if (gradients && requires_gradient(*held)) {
    PyErr_SetString(PyExc_RuntimeError, (std::string(name) + " requires a gradient, and Matmul has none; call "
                                                             "jitgemm.matmul, or use torch.no_grad()")
                                            .c_str());
    throw nb::python_error();
  }
  return held->view().data;
}

nb::object Matmul::execute(const Arrays& it, nb::handle stream) {
  if (is_cleared_)
    throw nb::value_error("this Matmul's arrays were freed by Python's garbage collector; make another one");
  const std::optional<std::intptr_t> used = stream_asked_for(stream);
  const bool gradients = records_gradients();
  std::array<std::optional<Array>, roles> held;
  const auto pointer = [&](Role role, nb::handle array) {
    return pointer_of(role, array, used, gradients, held[role]);
  };
  Operands operands;
  operands.a = pointer(role_a, it.a);
  operands.b = pointer(role_b, it.b);
  operands.c = pointer(role_c, it.c);
  operands.bias = pointer(role_bias, it.bias);
  operands.scale_a = static_cast<const float*>(pointer(role_scale_a, it.scale_a));
  operands.scale_b = static_cast<const float*>(pointer(role_scale_b, it.scale_b));
  operands.scale_d = static_cast<const float*>(pointer(role_scale_d, it.scale_d));
  if (product_.swapped) {
    std::swap(operands.a, operands.b);
    std::swap(operands.scale_a, operands.scale_b);
  }
  nb::object out = it.out.is_none() ? arrays_[role_d] : nb::borrow(it.out);
  const bool made = !out.is_valid() || out.is_none();
  if (made) out = empty_array(*held[role_a], shape_, product_.problem.d.type);
  operands.d = pointer(role_d, out);
  std::optional<EpilogueCall> epilogue;
  std::vector<EpilogueValue> values;
  if (epilogue_) {
    epilogue.emplace(*epilogue_, it.operands, place_, used);
    if (gradients && epilogue->requires_gradients()) {
      PyErr_SetString(PyExc_RuntimeError,
                      "an operand of the epilogue requires a gradient, and Matmul has none; use "
                      "torch.no_grad()");
      throw nb::python_error();
    }
    epilogue->complete(&*held[role_a], shape_, used);
    values = epilogue->values(product_);
    operands.epilogue = values.data();
    operands.epilogue_count = values.size();
  } else if (!it.operands.is_none()) {
    throw nb::value_error("operands are an epilogue's, and this Matmul has none; make another one");
  }
  if (product_.loops > 0) {
    const auto view_of = [&](Role role) { return held[role] ? &held[role]->view() : nullptr; };
    EpilogueArrays of_epilogue;
    if (epilogue) of_epilogue = epilogue->arrays();
    check_apart(
        {view_of(role_a), view_of(role_b), view_of(role_c), view_of(role_bias), epilogue ? &of_epilogue : nullptr},
        held[role_d]->view());
  }
  const Stream queue = stream_for(**context_, *held[role_a], used, made || (epilogue && epilogue->has_made()));
  run_product(**context_, product_, operands, queue, config(),
              std::any_of(held.begin(), held.end(), must_wait) || (epilogue && epilogue->must_wait()));
  if (made)
    out = finished_array(*held[role_a], std::move(out));
  else if (held[role_d]->type().is_torch())
    note_written(out);
  return epilogue ? epilogue->result(out, *held[role_a]) : out;
}

}  // namespace jitgemm::python
