#include "tune/calibration_file.hpp"

#include <cmath>

#include "core/out_of_memory.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/version.hpp"
#include "util/errno_text.hpp"
#include "util/json_document.hpp"
#include "util/line_file.hpp"
#include "util/log.hpp"
#include "util/today.hpp"

namespace jitgemm {
namespace {

using json = JsonDocument::Json;

constexpr int schema = 2;

bool is_for(const json& line, const DeviceInfo& device) {
  if (line.at("schema") != schema || line.at("library") != JITGEMM_VERSION) return false;
  const json& of = line.at("device");
  return of.at("name") == device.name && of.at("compute_capability") == device.compute_capability &&
         of.at("sm_count") == device.sm_count;
}

/// Throws std::exception.
DeviceRates rates_from(const json& line) {
  DeviceRates rates;
  const json& object = line.at("rates");
  for (const auto& [name, value] : fields_of(rates)) {
    *value = object.at(std::string(name)).get<double>();
    if (!(*value > 0) || !std::isfinite(*value)) throw std::invalid_argument(std::string(name) + " is no rate");
  }
  rates.origin = "calibrated " + line.at("date").get<std::string>();
  return rates;
}

}  // namespace

std::optional<DeviceRates> read_rates(const std::filesystem::path& file, const DeviceInfo& device) {
  std::optional<DeviceRates> rates;
  std::string damaged, why;
  const auto visit = [&](const LineFile::Line& line) {
    if (line.skipped) damaged = std::to_string(line.number) + ": " + line.skipped;
    if (line.skipped || line.text.empty() || !line.ended) return;
    try {
      const JsonDocument object(line.text);
      if (is_for(object.root(), device)) rates = rates_from(object.root());
    } catch (const std::exception& error) {
      if (is_out_of_memory(error)) throw;
      damaged = std::to_string(line.number) + ": " + error.what();
    }
  };
  LineFile lines(file);
  if (!lines.read([] {}, visit, &why))
    warn_once("rates " + file.string() + why,
              file.string() + " cannot be read: " + why + "; the cost model goes without: " +
                  (is_out_of_descriptors(why)
                       ? more_descriptors
                       : "correct the file's owner and permissions, or delete it and calibrate again"));
  if (!damaged.empty()) logger().warn("{}:{}; skipped: calibrate again, or remove the line", file.string(), damaged);
  return rates;
}

void add_rates(const std::filesystem::path& file, const DeviceInfo& device, DeviceRates rates) {
  JsonDocument document;
  json& line = document.root();
  line["schema"] = schema;
  line["library"] = JITGEMM_VERSION;
  line["date"] = today();
  json& of = line["device"];
  of["name"] = device.name;
  of["compute_capability"] = device.compute_capability;
  of["sm_count"] = device.sm_count;
  for (const auto& [name, value] : fields_of(rates)) line["rates"][std::string(name)] = *value;
  std::string why;
  if (!LineFile(file).append(std::vector{document.text()}, &why))
    throw Error(ErrorCode::io, "cannot write " + file.string() + ": " + why + "; name a cache directory of your own");
}

}  // namespace jitgemm
