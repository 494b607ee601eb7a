#include "plan/device_rates.hpp"

#include <algorithm>
#include <array>
#include <iterator>

#include "core/device_info.hpp"

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

DeviceRates derived_rates(const DeviceInfo& device) {
  const Architecture& architecture = architecture_of(device);
  const double sms = std::max(1, device.sm_count);
  const double peak_clocks_us = 1e3 * (device.clock_ghz > 0 ? device.clock_ghz : architecture.clock_ghz);
  const double memory_bytes_us = 1e3 * (device.memory_gb_s > 0 ? device.memory_gb_s : architecture.memory_gb_s);
  DeviceRates rates;
  rates.origin = "derived from the device's attributes";

  HopperRates& hopper = rates.sm90;
  const double clocks = 0.9 * peak_clocks_us;  // under load
  hopper.clocks_us = clocks;
  hopper.launch_us = 2;
  hopper.ingest = 1;
  hopper.row_ns = 128 / (64 * sms * clocks) * 1e3;  // all SMs take in 64 bytes a clock
  hopper.straddling_row_ns = 2 * hopper.row_ns;
  hopper.hot_row = 0.3;
  hopper.latency_us = 1200 / clocks;
  hopper.promotions = 32;             // two f32 additions a lane, and two moves, in four clocks
  hopper.epilogue_us = 384 / clocks;  // three instructions an accumulator
  hopper.unaligned_epilogue_us = 14 * hopper.epilogue_us;
  hopper.store_bytes_clock = 32;
  hopper.cluster_sum_us = 600 / clocks;  // an arrival at another SM's barrier, and its data
  hopper.cluster_sum_bytes_clock = 16;
  hopper.arrival_us = 2400 / clocks;  // release, atomic and acquire: three round trips to the L2
  hopper.part_bytes_us = 16 * clocks;
  hopper.wave_us = 2;
  hopper.second_block_us = 0.3;
  hopper.unhidden = 0.3;
  hopper.power_flops_us = 0.75 * 4096 * sms * peak_clocks_us;
  hopper.memory_bytes_us = 0.9 * memory_bytes_us;

  // The portable loop's constants are an H200's by ratio: its latencies are mostly instructions.
  PortableRates& portable = rates.sm80;
  const double clock = peak_clocks_us / (1e3 * architecture.clock_ghz);
  portable.sm_flops_us *= architecture.mma_sync * clock;
  portable.power_flops_us *= architecture.mma_sync * clock * sms / 132;
  for (double* time : {&portable.prologue_us, &portable.tile_prologue_us, &portable.step_us, &portable.mma_us,
                       &portable.epilogue_us}) {
    *time /= clock;
  }
  for (double* rate : {&portable.sm_l2_bytes_us, &portable.sm_smem_bytes_us}) *rate *= clock;
  for (double* rate : {&portable.partial_bytes_us, &portable.operand_bytes_us}) *rate *= clock * sms / 132;
  portable.memory_bytes_us = 0.86 * memory_bytes_us;
  return rates;
}

DeviceRates rates_of(const DeviceInfo& device) {
  if (device.emulated) return rates_of(device_info_for(device.architecture()));
  const bool h200 = device.compute_capability == 90 && device.name.find("H200") != std::string::npos;
  return h200 ? DeviceRates{} : derived_rates(device);
}

std::vector<std::pair<std::string_view, double*>> fields_of(DeviceRates& rates) {
  HopperRates& x = rates.sm90;
  PortableRates& y = rates.sm80;
  return {{"sm90.launch_us", &x.launch_us},
          {"sm90.clocks_us", &x.clocks_us},
          {"sm90.ingest", &x.ingest},
          {"sm90.row_ns", &x.row_ns},
          {"sm90.straddling_row_ns", &x.straddling_row_ns},
          {"sm90.hot_row", &x.hot_row},
          {"sm90.latency_us", &x.latency_us},
          {"sm90.promotions", &x.promotions},
          {"sm90.epilogue_us", &x.epilogue_us},
          {"sm90.unaligned_epilogue_us", &x.unaligned_epilogue_us},
          {"sm90.store_bytes_clock", &x.store_bytes_clock},
          {"sm90.cluster_sum_us", &x.cluster_sum_us},
          {"sm90.cluster_sum_bytes_clock", &x.cluster_sum_bytes_clock},
          {"sm90.arrival_us", &x.arrival_us},
          {"sm90.part_bytes_us", &x.part_bytes_us},
          {"sm90.wave_us", &x.wave_us},
          {"sm90.second_block_us", &x.second_block_us},
          {"sm90.unhidden", &x.unhidden},
          {"sm90.power_flops_us", &x.power_flops_us},
          {"sm90.memory_bytes_us", &x.memory_bytes_us},
          {"sm80.launch_us", &y.launch_us},
          {"sm80.sm_flops_us", &y.sm_flops_us},
          {"sm80.power_flops_us", &y.power_flops_us},
          {"sm80.prologue_us", &y.prologue_us},
          {"sm80.tile_prologue_us", &y.tile_prologue_us},
          {"sm80.latency_us", &y.latency_us},
          {"sm80.step_us", &y.step_us},
          {"sm80.mma_us", &y.mma_us},
          {"sm80.epilogue_us", &y.epilogue_us},
          {"sm80.arrival_us", &y.arrival_us},
          {"sm80.partial_bytes_us", &y.partial_bytes_us},
          {"sm80.operand_bytes_us", &y.operand_bytes_us},
          {"sm80.sm_l2_bytes_us", &y.sm_l2_bytes_us},
          {"sm80.sm_smem_bytes_us", &y.sm_smem_bytes_us},
          {"sm80.unhidden", &y.unhidden},
          {"sm80.memory_bytes_us", &y.memory_bytes_us}};
}

}  // namespace jitgemm
