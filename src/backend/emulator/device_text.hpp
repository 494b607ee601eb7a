#pragma once

#include <span>
#include <string_view>

namespace jitgemm {

struct DeviceFile {
  std::string_view name, text;
};

/// device.hpp and what it includes, embedded at build time.
std::span<const DeviceFile> emulator_device_files();

}  // namespace jitgemm
