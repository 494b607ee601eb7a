#pragma once

#include <string_view>

namespace jitgemm {

/// The text of device.hpp, embedded at build time.
std::string_view emulator_device_text();

}  // namespace jitgemm
