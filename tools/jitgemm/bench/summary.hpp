#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/record.hpp"

namespace jitgemm::cli {

struct Percentiles {
  std::size_t count = 0;
  double geomean = 0, p10 = 0, p50 = 0, p90 = 0;
};
Percentiles percentiles(std::vector<double> ratios);

/// The ratios by protocol, over all shapes and by wave count, for people.
std::string summary(const std::vector<BenchRecord>& records);
nlohmann::ordered_json summary_json(const std::vector<BenchRecord>& records);

}  // namespace jitgemm::cli
