#pragma once

#include "backend/emulator/device.hpp"

namespace jitgemm::emulator {

/// What every compiled kernel is given.
const device::emulator::Interface& interface();

}  // namespace jitgemm::emulator
