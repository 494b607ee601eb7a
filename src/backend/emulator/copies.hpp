#pragma once

#include "backend/emulator/launch.hpp"

namespace jitgemm::emulator {

/// A TMA load takes effect.
void land(Launch& launch, const PendingLoad& load);

// One pending cp.async, or store, of the thread takes effect, if there is any.
void fire_copy(Thread& thread);
void fire_store(Thread& thread);

/// A fault if the thread ends with copies that it did not wait for.
void check_copies_finished(Thread& thread);

/// What the 128 bytes of a device::TensorMap hold here. Throws Error{invalid_operand} for what hardware refuses.
device::TensorMap encode_tensor_map(const TensorMapSpec& spec);

}  // namespace jitgemm::emulator
