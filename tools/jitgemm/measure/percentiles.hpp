#pragma once

#include <cstddef>
#include <vector>

namespace jitgemm::cli {

/// Of ratios.
struct Percentiles {
  std::size_t count = 0;
  double geomean = 0, least = 0, p10 = 0, p50 = 0, p90 = 0;
};
Percentiles percentiles(std::vector<double> ratios);

}  // namespace jitgemm::cli
