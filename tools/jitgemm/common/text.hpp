#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "jitgemm/jitgemm.hpp"

namespace jitgemm::cli {

std::string bytes_text(double bytes);                               ///< "1.2 MiB"
std::string duration_text(double seconds);                          ///< "340 us", "1.2 s"
std::string counted(std::uint64_t count, const std::string& unit);  ///< "1 kernel", "2 kernels"

/// In quotes where it has to be; on one line.
std::string csv_field(const std::string& text);

nlohmann::ordered_json to_json(const Plan& plan);
nlohmann::ordered_json to_json(const TuneReport& report);
nlohmann::ordered_json to_json(const DeviceDescription& device);

/// Indented, with a newline; what is no UTF-8, as in a path, is replaced.
std::string json_text(const nlohmann::ordered_json& json);
/// The same to stdout.
void print_json(const nlohmann::ordered_json& json);

}  // namespace jitgemm::cli
