#pragma once

#include <string_view>
#include <utility>
#include <vector>

namespace jitgemm {

/// Rates of the cost model by name, "sm90.launch_us", ..., for calibration to read and change.
using NamedRates = std::vector<std::pair<std::string_view, double*>>;

}  // namespace jitgemm
