#pragma once

#include "backend/backend.hpp"
#include "backend/cuda/device_context.hpp"

namespace jitgemm::cuda {

// As Backend has them, of the context that is current.
PeerHandle handle_of(const DeviceContext& own, void* memory);
void* open_peer(const DeviceContext& own, const PeerHandle& handle);
void close_peer(const DeviceContext& own, void* memory) noexcept;

}  // namespace jitgemm::cuda
