#pragma once

#include "jitgemm/jitgemm.hpp"

namespace jitgemm::cli {

/// Measures what calibration_tasks() names, fits the cost model's rates to it, keeps them for this device and prints
/// what they are worth. Under a minute. Throws Error, with nothing kept, for a device whose times mean nothing.
void calibrate(const ContextOptions& options, bool json);

}  // namespace jitgemm::cli
