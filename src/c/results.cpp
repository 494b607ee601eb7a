// Structs that the library fills in.
#include <string>

#include "c/values.hpp"

namespace jitgemm::c {
namespace {

/// As much as there is room for.
template <std::size_t capacity>
void put(char (&to)[capacity], const std::string& text) {
  text.copy(to, capacity - 1);  // the rest is 0 already
}

}  // namespace

jitgemm_device to_c(const DeviceDescription& device) {
  const auto& [name, architecture, sm_count, smem_bytes_per_block, l2_bytes, memory_bytes, emulated] = device;
  jitgemm_device to{};
  to.size = sizeof to;
  put(to.name, name);
  put(to.architecture, architecture);
  to.smem_bytes_per_block = smem_bytes_per_block;
  to.l2_bytes = l2_bytes;
  to.memory_bytes = memory_bytes;
  to.sm_count = sm_count;
  to.emulated = emulated;
  return to;
}

jitgemm_counters to_c(const Counters& counters) {
  const auto& [launches, compiles, disk_hits, memory_hits, rebuilt, tuned, stopgaps, unkept, workspace_bytes,
               graph_workspace_bytes] = counters;
  return {sizeof(jitgemm_counters),
          launches,
          compiles,
          disk_hits,
          memory_hits,
          rebuilt,
          tuned,
          stopgaps,
          unkept,
          workspace_bytes,
          graph_workspace_bytes};
}

jitgemm_predicted_time to_c(const PredictedTime& time) {
  const auto& [us, launch_us, packing_us, main_loop_us, epilogue_us, fixup_us, memory_us, power_us] = time;
  return {sizeof(jitgemm_predicted_time),
          us,
          launch_us,
          packing_us,
          main_loop_us,
          epilogue_us,
          fixup_us,
          memory_us,
          power_us};
}

jitgemm_plan_info info_to_c(const Plan& plan) {
  const auto& [problem, config, source, why, predicted, rates, measured_us, spread, expected_regret, runners_up,
               constraints, device, tiles_m, tiles_n, stream_k_tiles, data_parallel_tiles, ctas, k_blocks_per_tile,
               stream_k_blocks, workspace_bytes, smem_bytes, packed_bytes, threads, registers, spill_bytes] = plan;
  jitgemm_plan_info to{};
  to.size = sizeof to;
  to.constraints = to_c(constraints);
  to.measured_us = measured_us;
  to.spread = spread;
  to.expected_regret = expected_regret;
  to.runner_up_count = runners_up.size();
  to.workspace_bytes = workspace_bytes;
  to.smem_bytes = smem_bytes;
  to.packed_bytes = packed_bytes;
  to.stream_k_blocks = stream_k_blocks;
  to.source = number_of(source);
  to.tiles_m = tiles_m;
  to.tiles_n = tiles_n;
  to.stream_k_tiles = stream_k_tiles;
  to.data_parallel_tiles = data_parallel_tiles;
  to.ctas = ctas;
  to.k_blocks_per_tile = k_blocks_per_tile;
  to.threads = threads;
  to.registers = registers;
  to.spill_bytes = spill_bytes;
  return to;
}

jitgemm_tuned_candidate to_c(const TunedCandidate& candidate) {
  const auto& [config, predicted_us, measured_us, spread, skipped] = candidate;
  return {sizeof(jitgemm_tuned_candidate), predicted_us, measured_us, spread};
}

}  // namespace jitgemm::c

using namespace jitgemm::c;

jitgemm_status jitgemm_device_init_sized(jitgemm_device* device, std::size_t size) {
  return guarded([&] { init(device, size); });
}
jitgemm_status jitgemm_counters_init_sized(jitgemm_counters* counters, std::size_t size) {
  return guarded([&] { init(counters, size); });
}
jitgemm_status jitgemm_predicted_time_init_sized(jitgemm_predicted_time* time, std::size_t size) {
  return guarded([&] { init(time, size); });
}
jitgemm_status jitgemm_plan_info_init_sized(jitgemm_plan_info* info, std::size_t size) {
  return guarded([&] { init(info, size); });
}
jitgemm_status jitgemm_tuned_candidate_init_sized(jitgemm_tuned_candidate* candidate, std::size_t size) {
  return guarded([&] { init(candidate, size); });
}
