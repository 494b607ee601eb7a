#include "plan/device_rates.hpp"

namespace jitgemm {

DeviceRates derived_rates(const DeviceInfo& device) {
  const DataSheet data_sheet = data_sheet_of(device);
  DeviceRates rates;
  rates.origin = "derived from the device's attributes";
  std::apply([&](auto&... row) { ((row = std::remove_reference_t<decltype(row)>::derived(data_sheet)), ...); },
             rates.rows);
  return rates;
}

DeviceRates rates_of(const DeviceInfo& device) {
  if (device.emulated) return rates_of(device_info_for(device.architecture()));
  const auto is = [&device](const char* name) {
    return device.compute_capability == 90 && device.name.find(name) != std::string::npos;
  };
  if (is("H200")) return {};
  DeviceRates rates = derived_rates(device);
  if (is("H100 80GB HBM3")) {
    rates.of<HopperRates>() = HopperRates::of_h100();
    rates.origin = "an H100's";
  }
  return rates;
}

NamedRates fields_of(DeviceRates& rates) {
  NamedRates all;
  const auto append = [&all](const NamedRates& row) { all.insert(all.end(), row.begin(), row.end()); };
  std::apply([&](auto&... row) { (append(row.fields()), ...); }, rates.rows);
  return all;
}

}  // namespace jitgemm
