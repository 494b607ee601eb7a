#include "streams.hpp"

#include <memory>

#include "backend/backend.hpp"
#include "context_internals.hpp"
#include "without_lock.hpp"

namespace jitgemm::python {

Stream current_stream(const ArrayType& type, const Place& place) {
  if (!place.cuda) return nullptr;
  if (type.api) {
    void* stream = nullptr;
    if (type.api->current_work_stream(dlpack::kDLCUDA, place.number, &stream) != 0) throw nb::python_error();
    return static_cast<Stream>(stream);
  }
  if (type.is_torch())
    return stream_of(nb::module_::import_("torch").attr("cuda").attr("current_stream")(place.number));
  if (type.package == "cupy") return stream_of(nb::module_::import_("cupy").attr("cuda").attr("get_current_stream")());
  return nullptr;
}

namespace {

bool is_default(Stream stream) { return !stream || stream == reinterpret_cast<Stream>(1); }  // cudaStreamLegacy

/// Whether the default stream may be recorded on: while another one is captured it neither answers nor may be.
bool answers(Backend& backend, Stream stream) {
  try {
    backend.capture_status(stream);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void wait_for_current(Context& context, const Array& like, Stream stream) {
  if (!like.place().cuda) return;
  const Stream current = current_stream(like.type(), like.place());
  if (current == stream) return;
  const WithoutLock unlock;
  Backend& backend = ContextInternals::backend(context);
  if (is_default(current) && !answers(backend, current)) return;
  const auto capture_of = [&](Stream one) -> std::uint64_t {
    if (is_default(one) || backend.capture_status(one) != CaptureStatus::capturing) return 0;
    return backend.capture_point(one).capture;
  };
  if (capture_of(current) != capture_of(stream)) return;  // no wait leads into a graph or out of it
  const auto destroy = [&](void* event) { backend.destroy_event(event); };
  const std::unique_ptr<void, decltype(destroy)> event(backend.create_event(), destroy);
  backend.record_event(event.get(), current);
  backend.wait_event(event.get(), stream);
}

}  // namespace

Stream stream_for(Context& context, const Array& like, std::optional<std::intptr_t> asked, bool made) {
  if (!asked) return current_stream(like.type(), like.place());
  const auto stream = reinterpret_cast<Stream>(*asked);
  if (made) wait_for_current(context, like, stream);
  return stream;
}

std::optional<std::intptr_t> stream_asked_for(nb::handle stream) {
  if (stream.is_none()) return std::nullopt;
  return reinterpret_cast<std::intptr_t>(stream_of(stream));
}

Stream stream_of(nb::handle stream) {
  const auto from_integer = [](nb::handle value) {
    std::uintptr_t handle = 0;
    if (nb::try_cast(value, handle)) return reinterpret_cast<Stream>(handle);
    throw nb::type_error("stream is no handle of a CUDA stream; pass 0 for the default one");
  };
  if (PyLong_Check(stream.ptr())) return from_integer(stream);
  if (nb::hasattr(stream, "__cuda_stream__")) {
    nb::object described = stream.attr("__cuda_stream__");
    if (PyCallable_Check(described.ptr())) described = described();
    return from_integer(described[1]);
  }
  for (const char* attribute : {"cuda_stream", "ptr"})
    if (nb::hasattr(stream, attribute)) return from_integer(stream.attr(attribute));
  throw nb::type_error("stream is no CUDA stream; pass its handle as an integer, or one of torch's or CuPy's");
}

}  // namespace jitgemm::python
