#include "plan/sm90/rates.hpp"

namespace jitgemm {

namespace {

// Of a data sheet's numbers, what lasts.
constexpr double sustained_clock = 0.9, sustained_products = 0.75, sustained_memory = 0.9;
constexpr double flops_a_clock = 4096;  // of an SM, 16-bit operands

}  // namespace

HopperRates HopperRates::of_h100() {
  return {.launch_us = 1.38,
          .clocks_us = 1.52e3,
          .ingest = 0.902,
          .shared_writes = 0.3,
          .row_ns = 0.0155,
          .straddling_row_ns = 0.025,
          .shared_row = 0.941,
          .hot_row = 0.0206,
          .ping_pong_row = 1.04,
          .latency_us = 0.971,
          .clusters = 0.983,
          .square_clusters = 1.09,
          .promotions = 24.5,
          .epilogue_us = 0.0637,
          .unaligned_epilogue_us = 2.05,
          .store_bytes_clock = 16.8,
          .cluster_sum_us = 0.237,
          .cluster_sum_bytes_clock = 12.9,
          .arrival_us = 4.05,
          .part_bytes_us = 22e3,
          .wave_us = 2.13,
          .second_block_us = 0.277,
          .unhidden = 0.39,
          .power_flops_us = 1163e6,
          .memory_bytes_us = 2.95e6};
}

HopperRates HopperRates::derived(const DataSheet& device) {
  HopperRates hopper;
  const double clocks = sustained_clock * device.peak_clocks_us;
  hopper.clocks_us = clocks;
  hopper.launch_us = 1.3;
  hopper.ingest = 0.83;
  hopper.shared_writes = 0.32;
  hopper.row_ns = 128 / (36 * device.sms * clocks) * 1e3;  // all SMs take in 36 bytes a clock
  hopper.straddling_row_ns = 1.55 * hopper.row_ns;
  hopper.shared_row = 0.92;
  hopper.hot_row = 0.035;
  hopper.ping_pong_row = hopper.clusters = 1;
  hopper.square_clusters = 1.1;
  hopper.latency_us = 1500 / clocks;
  hopper.promotions = 32;             // two f32 additions a lane, and two moves, in four clocks
  hopper.epilogue_us = 270 / clocks;  // two instructions an accumulator
  hopper.unaligned_epilogue_us = 4800 / clocks;
  hopper.store_bytes_clock = 20;
  hopper.cluster_sum_us = 440 / clocks;  // an arrival at another SM's barrier, and its data
  hopper.cluster_sum_bytes_clock = 14;
  hopper.arrival_us =
      4500 / clocks;  // release, atomic and acquire: three round trips to the L2, and the wait for the last
  hopper.part_bytes_us = 19 * clocks;
  hopper.wave_us = 2.3;
  hopper.second_block_us = 0.28;
  hopper.unhidden = 0.42;
  hopper.power_flops_us = sustained_products * flops_a_clock * device.sms * device.peak_clocks_us;
  hopper.memory_bytes_us = sustained_memory * device.memory_bytes_us;
  return hopper;
}

NamedRates HopperRates::fields() {
  return {{"sm90.launch_us", &launch_us},
          {"sm90.clocks_us", &clocks_us},
          {"sm90.ingest", &ingest},
          {"sm90.shared_writes", &shared_writes},
          {"sm90.row_ns", &row_ns},
          {"sm90.straddling_row_ns", &straddling_row_ns},
          {"sm90.shared_row", &shared_row},
          {"sm90.hot_row", &hot_row},
          {"sm90.ping_pong_row", &ping_pong_row},
          {"sm90.latency_us", &latency_us},
          {"sm90.clusters", &clusters},
          {"sm90.square_clusters", &square_clusters},
          {"sm90.promotions", &promotions},
          {"sm90.epilogue_us", &epilogue_us},
          {"sm90.unaligned_epilogue_us", &unaligned_epilogue_us},
          {"sm90.store_bytes_clock", &store_bytes_clock},
          {"sm90.cluster_sum_us", &cluster_sum_us},
          {"sm90.cluster_sum_bytes_clock", &cluster_sum_bytes_clock},
          {"sm90.arrival_us", &arrival_us},
          {"sm90.part_bytes_us", &part_bytes_us},
          {"sm90.wave_us", &wave_us},
          {"sm90.second_block_us", &second_block_us},
          {"sm90.unhidden", &unhidden},
          {"sm90.power_flops_us", &power_flops_us},
          {"sm90.memory_bytes_us", &memory_bytes_us}};
}

}  // namespace jitgemm
