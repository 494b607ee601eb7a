#pragma once

#include "core/device_info.hpp"

namespace jitgemm {

/// What rates are derived from: what a device says of itself, else what is typical of its architecture.
struct DataSheet {
  double sms;
  double peak_clocks_us;   ///< clocks a microsecond, at most
  double relative_clock;   ///< of that, to the architecture's typical one
  double memory_bytes_us;  ///< bytes a microsecond, at most
  double mma_sync;         ///< one SM's dense rate with f32 accumulation at the typical clock, an H200's = 1
};
DataSheet data_sheet_of(const DeviceInfo& device);

}  // namespace jitgemm
