#pragma once

#include <algorithm>
#include <memory>

#include "backend/backend.hpp"

namespace jitgemm {

struct ReleaseDeviceMemory {
  Backend* backend;
  void operator()(void* memory) const noexcept { backend->release(memory); }
};
using DeviceMemory = std::unique_ptr<void, ReleaseDeviceMemory>;

/// At least 256 bytes, so that none is null. Throws Error{out_of_memory}.
inline DeviceMemory allocate_memory(Backend& backend, std::size_t bytes) {
  return DeviceMemory(backend.allocate(std::max<std::size_t>(bytes, 256)), ReleaseDeviceMemory{&backend});
}

}  // namespace jitgemm
