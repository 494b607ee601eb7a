#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/record.hpp"

namespace jitgemm::cli {

/// The ratios by protocol, over all shapes and by wave count, for people.
std::string summary(const std::vector<BenchRecord>& records);
nlohmann::ordered_json summary_json(const std::vector<BenchRecord>& records);

}  // namespace jitgemm::cli
