#pragma once

#include "backend/emulator/launch.hpp"

// The functions that kernels call, which the emulator's sources implement.
namespace jitgemm::emulator {

using device::TensorMap;

#define FUNCTION(result, name, parameters) result name parameters;
#include "backend/emulator/functions.def"

}  // namespace jitgemm::emulator
