#include "text.hpp"

#include <fmt/core.h>

#include <array>
#include <cstdio>

#include "core/problem.hpp"
#include "plan/constraints.hpp"

namespace jitgemm::cli {

std::string bytes_text(double bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 100 ? 0 : 1, units[unit]);
}

std::string duration_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  return fmt::format("{:.1f} s", seconds);
}

std::string counted(std::uint64_t count, const std::string& unit) {
  return fmt::format("{} {}{}", count, unit, count == 1 ? "" : "s");
}

double tflops(const Problem& p, double us) { return 1e-6 * flops(p) / us; }

nlohmann::ordered_json to_json(const Plan& plan) {
  nlohmann::ordered_json runners_up = nlohmann::ordered_json::array();
  for (const MeasuredConfig& runner_up : plan.runners_up)
    runners_up.push_back({{"config", to_string(runner_up.config)}, {"measured_us", runner_up.median_us}});
  return {{"problem", to_string(plan.problem)},
          {"config", to_string(plan.config)},
          {"constraints", to_string(plan.constraints)},
          {"source", to_string(plan.source)},
          {"why", plan.why},
          {"predicted_us", plan.predicted.us},
          {"predicted",
           {{"launch_us", plan.predicted.launch_us},
            {"packing_us", plan.predicted.packing_us},
            {"main_loop_us", plan.predicted.main_loop_us},
            {"epilogue_us", plan.predicted.epilogue_us},
            {"fixup_us", plan.predicted.fixup_us},
            {"memory_us", plan.predicted.memory_us},
            {"power_us", plan.predicted.power_us}}},
          {"rates", plan.rates},
          {"measured_us", plan.measured_us},
          {"spread", plan.spread},
          {"runners_up", runners_up},
          {"expected_regret", plan.expected_regret},
          {"device", plan.device},
          {"batch", plan.problem.batch},
          {"tiles_m", plan.tiles_m},
          {"tiles_n", plan.tiles_n},
          {"stream_k_tiles", plan.stream_k_tiles},
          {"data_parallel_tiles", plan.data_parallel_tiles},
          {"programs", plan.programs},
          {"k_steps_per_tile", plan.k_steps_per_tile},
          {"stream_k_steps", plan.stream_k_steps},
          {"workspace_bytes", plan.workspace_bytes},
          {"packed_bytes", plan.packed_bytes},
          {"smem_bytes", plan.smem_bytes},
          {"threads", plan.threads},
          {"registers", plan.registers},
          {"spill_bytes", plan.spill_bytes}};
}

nlohmann::ordered_json to_json(const TuneReport& report) {
  nlohmann::ordered_json candidates = nlohmann::ordered_json::array();
  for (const TunedCandidate& candidate : report.candidates) {
    candidates.push_back({{"config", to_string(candidate.config)},
                          {"predicted_us", candidate.predicted_us},
                          {"measured_us", candidate.measured_us},
                          {"spread", candidate.spread},
                          {"skipped", candidate.skipped}});
  }
  return {{"plan", to_json(report.plan)}, {"seconds", report.seconds}, {"candidates", candidates}};
}

nlohmann::ordered_json to_json(const DeviceDescription& device) {
  return {{"name", device.name},         {"architecture", device.architecture},
          {"sm_count", device.sm_count}, {"smem_bytes_per_block", device.smem_bytes_per_block},
          {"l2_bytes", device.l2_bytes}, {"memory_bytes", device.memory_bytes},
          {"emulated", device.emulated}};
}

std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void print_json(const nlohmann::ordered_json& json) { std::fputs(json_text(json).c_str(), stdout); }

}  // namespace jitgemm::cli
