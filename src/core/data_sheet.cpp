#include "core/data_sheet.hpp"

#include <algorithm>
#include <array>
#include <iterator>

namespace jitgemm {
namespace {

/// What an architecture's typical device has, for those that do not say.
struct Architecture {
  int compute_capability;
  double mma_sync;                ///< one SM's dense rate with f32 accumulation at this clock, an H200's = 1
  double clock_ghz, memory_gb_s;  ///< data sheet
};
constexpr std::array architectures{Architecture{80, 0.75, 1.41, 1800}, Architecture{86, 0.26, 1.70, 930},
                                   Architecture{87, 0.26, 1.30, 200},  Architecture{89, 0.36, 2.52, 1000},
                                   Architecture{90, 1.0, 1.98, 4900},  Architecture{100, 1.0, 1.97, 8000},
                                   Architecture{103, 1.0, 1.92, 8000}, Architecture{120, 0.36, 2.41, 1790}};

const Architecture& architecture_of(const DeviceInfo& device) {
  const auto newer = std::find_if(architectures.begin(), architectures.end(), [&](const Architecture& a) {
    return a.compute_capability > device.compute_capability;
  });
  return newer == architectures.begin() ? *newer : *std::prev(newer);
}

}  // namespace

DataSheet data_sheet_of(const DeviceInfo& device) {
  const Architecture& architecture = architecture_of(device);
  const double peak_clocks_us = 1e3 * (device.clock_ghz > 0 ? device.clock_ghz : architecture.clock_ghz);
  return {.sms = double(std::max(1, device.sm_count)),
          .peak_clocks_us = peak_clocks_us,
          .relative_clock = peak_clocks_us / (1e3 * architecture.clock_ghz),
          .memory_bytes_us = 1e3 * (device.memory_gb_s > 0 ? device.memory_gb_s : architecture.memory_gb_s),
          .mma_sync = architecture.mma_sync};
}

}  // namespace jitgemm
