#include "plan/device_rates.hpp"

namespace jitgemm {

DeviceRates derived_rates(const DeviceInfo& device) {
  const DataSheet data_sheet = data_sheet_of(device);
  return {.sm90 = derived_hopper_rates(data_sheet),
          .sm80 = derived_portable_rates(data_sheet),
          .origin = "derived from the device's attributes"};
}

DeviceRates rates_of(const DeviceInfo& device) {
  if (device.emulated) return rates_of(device_info_for(device.architecture()));
  const bool h200 = device.compute_capability == 90 && device.name.find("H200") != std::string::npos;
  return h200 ? DeviceRates{} : derived_rates(device);
}

NamedRates fields_of(DeviceRates& rates) {
  NamedRates all = fields_of(rates.sm90);
  const NamedRates portable = fields_of(rates.sm80);
  all.insert(all.end(), portable.begin(), portable.end());
  return all;
}

}  // namespace jitgemm
