#pragma once

#include "soak/options.hpp"

namespace jitgemm::cli {

/// Calls from many threads what is drawn at random, and reports. Throws Error, also at the end if a call failed.
void soak(const SoakOptions& options);

}  // namespace jitgemm::cli
