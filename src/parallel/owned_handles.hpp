#pragma once

#include <memory>
#include <type_traits>

#include "backend/backend.hpp"

namespace jitgemm {

struct DestroyEvent {
  Backend* backend;
  void operator()(void* event) const noexcept { backend->destroy_event(event); }
};
using OwnedEvent = std::unique_ptr<void, DestroyEvent>;
inline OwnedEvent make_event(Backend& backend) { return {backend.create_event(), DestroyEvent{&backend}}; }

struct DestroyStream {
  Backend* backend;
  void operator()(Stream stream) const noexcept { backend->destroy_stream(stream); }
};
using OwnedStream = std::unique_ptr<std::remove_pointer_t<Stream>, DestroyStream>;
inline OwnedStream make_copy_stream(Backend& backend) {
  return {backend.create_copy_stream(), DestroyStream{&backend}};
}

}  // namespace jitgemm
