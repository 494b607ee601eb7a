#pragma once

#include "array.hpp"
#include "jitgemm/context.hpp"

namespace jitgemm::python {

/// The stream that the array's framework queues work on.
Stream current_stream(const ArrayType& type, const Place& place);
/// Makes `stream` wait for what the current one of the framework of `like` has to do now. That framework has just made
/// an array to be written on `stream`, of memory that the current one may still use.
void wait_for_current(Context& context, const Array& like, Stream stream);
/// Of an integer, an object with `__cuda_stream__`, torch's or CuPy's. Throws TypeError.
Stream stream_of(nb::handle stream);

}  // namespace jitgemm::python
