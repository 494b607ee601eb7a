#include "matrix_pointers.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <bit>
#include <string>

#include "bindings.hpp"
#include "collected.hpp"
#include "context_internals.hpp"
#include "torch_way.hpp"
#include "tune/device_memory.hpp"

namespace jitgemm::python {

MatrixPointers::MatrixPointers(nb::handle arrays, nb::handle context) : context_(nb::borrow(context)) {
  if (!nb::isinstance<nb::iterable>(arrays))
    throw nb::type_error(("matrices are a " + python_name(arrays.type()) + "; pass a list of arrays (K, N)").c_str());
  std::uintptr_t bits = std::uintptr_t(alignment_);
  for (nb::handle object : arrays) {
    const std::string name = "matrix " + std::to_string(addresses_.size());
    const Array array(object, name.c_str());
    const View& view = array.view();
    if (view.rank != 2)
      throw nb::value_error((name + " is " + to_string(shape_of(view)) + ": pass matrices (K, N)").c_str());
    if (std::bit_cast<std::uintptr_t>(view.data) % size_of(view.type) != 0)
      throw nb::value_error((name + " is not a multiple of " + std::to_string(size_of(view.type)) +
                             " bytes in memory; pass an aligned copy")
                                .c_str());
    if (addresses_.empty()) {
      view_ = view;
      place_ = array.place();
    } else if (!alike(view, view_) || array.place() != place_) {
      throw nb::value_error((name + " is " + form_text(view) + " on " + to_string(array.place()) + ", and the first " +
                             form_text(view_) + " on " + to_string(place_) + ": pass matrices that are alike")
                                .c_str());
    }
    must_wait_ = must_wait_ || (place_.cuda && !array.type().follows_stream());
    addresses_.push_back(std::bit_cast<std::uintptr_t>(view.data));
    bits |= addresses_.back();
    arrays_.push_back(nb::borrow(object));
    keepers_.push_back(nb::borrow(array.keeper()));
  }
  if (addresses_.empty())
    throw nb::value_error("there is no matrix; without groups pass an array (0, K, N) in the place of MatrixPointers");
  alignment_ = int(bits & -bits);
  std::copy_backward(view_.shape.begin(), view_.shape.begin() + 2, view_.shape.begin() + 3);
  std::copy_backward(view_.strides.begin(), view_.strides.begin() + 2, view_.strides.begin() + 3);
  view_.rank = 3;
  view_.shape[0] = std::int64_t(addresses_.size());
  view_.strides[0] = 0;
  view_.data = nullptr;

  Backend& backend = ContextInternals::backend(*context_for(context, place_));
  const std::size_t bytes = addresses_.size() * sizeof addresses_[0];
  table_ = allocate_memory(backend, bytes);
  backend.copy_to_device(table_.get(), addresses_.data(), bytes);
}

MatrixPointers MatrixPointers::transposed() const {
  require_arrays();
  MatrixPointers other = *this;
  std::swap(other.view_.shape[1], other.view_.shape[2]);
  std::swap(other.view_.strides[1], other.view_.strides[2]);
  other.transposed_ = !transposed_;
  return other;
}

nb::object MatrixPointers::array(std::size_t group) const {
  return transposed_ ? arrays_[group].attr("T") : arrays_[group];
}

void MatrixPointers::require_arrays() const {
  if (arrays_.empty())
    throw nb::value_error("the matrices of MatrixPointers were freed by Python's garbage collector; make another one");
}

bool MatrixPointers::overlap(const View& other) const {
  const Occupied of_other = occupied(other);
  View one = view_;
  one.shape[0] = 1;
  return std::ranges::any_of(addresses_, [&](std::uintptr_t at) {
    one.data = std::bit_cast<void*>(at);
    return occupied(one).overlaps(of_other);
  });
}

bool MatrixPointers::requires_gradients() const {
  for (const nb::object& object : arrays_)
    if (const Array array(object, "matrix"); array.type().is_torch() && requires_gradient(array)) return true;
  return false;
}

void bind_matrix_pointers(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<MatrixPointers>(
      module, "MatrixPointers", nb::type_slots(collected_slots<MatrixPointers>),
      R"(Matrices (K, N) that lie apart, as the weights of grouped_mm() in the place of a stack of them.

    experts = jitgemm.MatrixPointers([expert.weight.T for expert in layer.experts])
    routed = jitgemm.grouped_mm(a, experts, offs)

Of one type, shape and strides, on one device. A table of their addresses is made on the device, once: products read it
there, also when a captured graph is replayed. It keeps the matrices alive, and has to be kept as long as products that use
it may run; whoever gives a matrix other memory makes another. Each torch tensor among them gets a gradient of its own,
unless it was made under no_grad(), as weight.T may be.)")
      .def(nb::init<nb::handle, nb::handle>(), nb::arg("matrices").none(), nb::kw_only(), "context"_a = nb::none(),
           nb::sig("def __init__(self, matrices: collections.abc.Iterable[typing.Any], *, context: Context | None = "
                   "None) -> None"))
      .def("__len__", [](const MatrixPointers& self) { return self.view().shape[0]; })
      .def(
          "__getitem__",
          [](const MatrixPointers& self, nb::handle index) -> nb::object {
            self.require_arrays();
            const Py_ssize_t group = PyNumber_AsSsize_t(index.ptr(), nullptr);  // the last there is, of larger ones
            if (group == -1 && PyErr_Occurred()) throw nb::python_error();
            if (group < 0 || group >= self.view().shape[0])
              throw nb::index_error("there is no such matrix; they count from 0");
            return self.array(std::size_t(group));
          },
          nb::arg("group").none(), nb::sig("def __getitem__(self, group: int) -> typing.Any"))
      .def_prop_ro("mT", &MatrixPointers::transposed, nb::sig("def mT(self, /) -> MatrixPointers"),
                   "Each matrix transposed, (N, K), where it lies.")
      .def("__repr__", [](const MatrixPointers& self) {
        return "jitgemm.MatrixPointers of " + form_text(self.view()) + " on " + to_string(self.place());
      });
}

}  // namespace jitgemm::python
