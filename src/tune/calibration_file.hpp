#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "plan/rated_device.hpp"

namespace jitgemm {

/// Rates of devices, one a line of JSON, the last one of a device counts. Lines of other versions of the library, whose
/// cost model may mean something else, and of other devices are passed over, damaged ones with one warning. nullopt if
/// there are none for this device: its name, compute capability and SM count.
std::optional<DeviceRates> read_rates(const std::filesystem::path& file, const DeviceInfo& device);
/// Throws Error{io}.
void add_rates(const std::filesystem::path& file, const DeviceInfo& device, DeviceRates rates);

}  // namespace jitgemm
