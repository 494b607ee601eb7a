#pragma once

#include "array.hpp"

namespace jitgemm::python {

/// The stream that the array's framework queues work on.
Stream current_stream(const ArrayType& type, const Place& place);
/// Of an integer, an object with `__cuda_stream__`, torch's or CuPy's. Throws TypeError.
Stream stream_of(nb::handle stream);

}  // namespace jitgemm::python
