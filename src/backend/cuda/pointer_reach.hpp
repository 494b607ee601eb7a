#pragma once

#include "backend/cuda/device_context.hpp"

namespace jitgemm::cuda {

/// Whether kernels of a context can read and write what a pointer points to.
enum class Reach : std::uint8_t {
  ours,            // they can
  host_elsewhere,  // page-locked memory, which they see at another address
  other_device,    // another device's memory, which they cannot reach
  unknown,         // nothing that the driver knows
};

/// Of the context, which is current. Throws Error{invalid_operand} where the driver does not answer.
Reach reach_of(const DeviceContext& context, const void* pointer);

/// What is wrong with an operand, and what to do, to follow its name. Not of Reach::ours.
const char* text_of(Reach reach);

}  // namespace jitgemm::cuda
