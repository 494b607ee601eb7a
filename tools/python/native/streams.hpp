#pragma once

#include "array.hpp"
#include "jitgemm/context.hpp"

namespace jitgemm::python {

/// The stream that the array's framework queues work on.
Stream current_stream(const ArrayType& type, const Place& place);
/// The stream of a call with an array `like` that has `asked` for one, or else is on its framework's current one.
/// `made`: that framework has made an array to be written there, of memory that the current one may still use, so that
/// another one waits for it.
Stream stream_for(Context& context, const Array& like, std::optional<std::intptr_t> asked, bool made);
/// Of an integer, an object with `__cuda_stream__`, torch's or CuPy's. Throws TypeError.
Stream stream_of(nb::handle stream);
/// The same as producers of arrays are told of it; nullopt of None.
std::optional<std::intptr_t> stream_asked_for(nb::handle stream);

}  // namespace jitgemm::python
