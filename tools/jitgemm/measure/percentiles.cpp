#include "measure/percentiles.hpp"

#include <algorithm>
#include <cmath>

namespace jitgemm::cli {

Percentiles percentiles(std::vector<double> ratios) {
  if (ratios.empty()) return {};
  std::sort(ratios.begin(), ratios.end());
  double logs = 0;
  for (double ratio : ratios) logs += std::log(ratio);
  const auto at = [&](double part) { return ratios[std::size_t(std::lround(part * double(ratios.size() - 1)))]; };
  return {.count = ratios.size(),
          .geomean = std::exp(logs / double(ratios.size())),
          .least = ratios.front(),
          .p10 = at(0.1),
          .p50 = at(0.5),
          .p90 = at(0.9)};
}

}  // namespace jitgemm::cli
