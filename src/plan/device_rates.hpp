#pragma once

#include <string>
#include <tuple>

#include "core/data_sheet.hpp"
#include "plan/named_rates.hpp"
#include "plan/sm80/rates.hpp"
#include "plan/sm90/rates.hpp"

namespace jitgemm {

/// What the cost model takes a device to do: a row of rates for each family. The defaults are an H200's.
struct DeviceRates {
  std::tuple<HopperRates, PortableRates> rows;
  std::string origin = "an H200's";  ///< or "an H100's", "derived", or when they were calibrated

  template <typename Rates>
  Rates& of() {
    return std::get<Rates>(rows);
  }
  template <typename Rates>
  const Rates& of() const {
    return std::get<Rates>(rows);
  }
};

/// Those measured for an H200 or an H100 (SXM); else what follows from the architecture's documented widths, the
/// device's clock, SMs and memory, and latencies in clocks that hardly differ between devices of an architecture.
/// Of an emulated device, what the typical one of its architecture has.
DeviceRates rates_of(const DeviceInfo& device);
/// The last of that, for any device.
DeviceRates derived_rates(const DeviceInfo& device);

/// All of them by name, to store: "sm90.launch_us", ...
NamedRates fields_of(DeviceRates& rates);

}  // namespace jitgemm
