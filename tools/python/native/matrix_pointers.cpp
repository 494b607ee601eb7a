#include "matrix_pointers.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "context_internals.hpp"
#include "matmul.hpp"

namespace jitgemm::python {

MatrixPointers::MatrixPointers(nb::iterable arrays, nb::handle context) : context_(nb::borrow(context)) {
  std::vector<std::uintptr_t> pointers;
  std::uintptr_t bits = std::uintptr_t(alignment_);
  for (nb::handle object : arrays) {
    const Array array(object, "matrix");
    const View& view = array.view();
    if (view.rank != 2)
      throw nb::value_error(
          ("matrix " + std::to_string(pointers.size()) + " is " + to_string(shape_of(view)) + ": pass matrices (K, N)")
              .c_str());
    if (pointers.empty()) {
      view_ = view;
      place_ = array.place();
    } else if (!alike(view, view_) || array.place() != place_) {
      throw nb::value_error(("matrix " + std::to_string(pointers.size()) + " is " + form_text(view) + " on " +
                             to_string(array.place()) + ", and the first " + form_text(view_) + " on " +
                             to_string(place_) + ": pass matrices that are alike")
                                .c_str());
    }
    must_wait_ = must_wait_ || (place_.cuda && !array.type().follows_stream());
    pointers.push_back(std::bit_cast<std::uintptr_t>(view.data));
    bits |= pointers.back();
    arrays_.append(object);
  }
  if (pointers.empty()) throw nb::value_error("there is no matrix: pass one for each group, and none for no groups");
  alignment_ = int(bits & -bits);
  std::copy_backward(view_.shape.begin(), view_.shape.begin() + 2, view_.shape.begin() + 3);
  std::copy_backward(view_.strides.begin(), view_.strides.begin() + 2, view_.strides.begin() + 3);
  view_.rank = 3;
  view_.shape[0] = std::int64_t(pointers.size());
  view_.strides[0] = 0;
  view_.data = nullptr;

  ContextHandle* handle = nullptr;
  if (context.is_none())
    handle = &default_context(place_);
  else if (!nb::try_cast<ContextHandle*>(context, handle) || !handle)
    throw nb::type_error("context is no jitgemm.Context; leave it out for the one of the arrays' device");
  else
    handle->require(place_);
  Backend& backend = ContextInternals::backend(**handle);
  const std::size_t bytes = pointers.size() * sizeof pointers[0];
  table_ = allocate_memory(backend, bytes);
  backend.copy_to_device(table_.get(), pointers.data(), bytes);
}

bool MatrixPointers::requires_gradients() const {
  for (nb::handle object : arrays_)
    if (const Array array(object, "matrix"); array.type().is_torch() && requires_gradient(array)) return true;
  return false;
}

void bind_matrix_pointers(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<MatrixPointers>(
      module, "MatrixPointers",
      R"(Matrices (K, N) that lie apart, as the weights of grouped_mm() in the place of a stack of them.

    experts = jitgemm.MatrixPointers([expert.weight.T for expert in layer.experts])
    routed = jitgemm.grouped_mm(a, experts, offs)

Of one type, shape and strides, on one device. A table of their addresses is made on the device, once: products read it
there, also when a captured graph is replayed. It keeps the matrices alive, and has to be kept as long as products that use
it may run; whoever gives a matrix other memory makes another. Such weights have no gradients.)")
      .def(nb::init<nb::iterable, nb::handle>(), "matrices"_a, nb::kw_only(), "context"_a = nb::none(),
           nb::sig("def __init__(self, matrices: collections.abc.Iterable[typing.Any], *, context: Context | None = "
                   "None) -> None"))
      .def("__len__", [](const MatrixPointers& self) { return self.view().shape[0]; })
      .def(
          "__getitem__",
          [](const MatrixPointers& self, std::int64_t group) -> nb::object {
            if (group < 0 || group >= self.view().shape[0]) throw nb::index_error("there are fewer matrices");
            return nb::borrow(self.arrays()[std::size_t(group)]);
          },
          "group"_a, nb::sig("def __getitem__(self, group: int) -> typing.Any"))
      .def("__repr__", [](const MatrixPointers& self) {
        return "jitgemm.MatrixPointers of " + form_text(self.view()) + " on " + to_string(self.place());
      });
}

}  // namespace jitgemm::python
