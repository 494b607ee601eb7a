#include "common/text.hpp"

#include <fmt/core.h>

#include <array>
#include <cstdio>

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

nlohmann::ordered_json to_json(const Plan& plan) { return nlohmann::ordered_json::parse(plan.json()); }

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

std::string csv_field(const std::string& field) {
  if (field.find_first_of(",\"\n") == std::string::npos) return field;
  std::string text = "\"";
  for (char c : field) text += c == '"' ? std::string("\"\"") : c == '\n' ? std::string(" ") : std::string(1, c);
  return text + "\"";
}

}  // namespace jitgemm::cli
