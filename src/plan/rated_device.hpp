#pragma once

#include <utility>

#include "core/device_info.hpp"
#include "plan/device_rates.hpp"

namespace jitgemm {

/// A device, and what the cost model takes it to do. Whoever chooses owns one; a backend knows of no rates.
struct RatedDevice : DeviceInfo {
  RatedDevice() = default;
  /// With rates_of() the device.
  explicit RatedDevice(DeviceInfo device) : DeviceInfo(std::move(device)), rates(rates_of(*this)) {}
  RatedDevice(DeviceInfo device, DeviceRates its_rates) : DeviceInfo(std::move(device)), rates(std::move(its_rates)) {}

  DeviceRates rates;
};

}  // namespace jitgemm
