#pragma once

#include "array.hpp"

namespace jitgemm::python {

/// A new array of the same framework to write to, contents undefined; of JAX's on the CPU, which nobody may write to,
/// one of NumPy's. Throws TypeError where the framework cannot make one.
nb::object empty_array(const Array& like, const Shape& shape, DataType type);
/// What the caller gets of it, once it is written.
nb::object finished_array(const Array& like, nb::object written);
/// A contiguous copy. Throws TypeError for frameworks that are not known to make one.
nb::object contiguous_copy(const Array& array, const char* name);

}  // namespace jitgemm::python
