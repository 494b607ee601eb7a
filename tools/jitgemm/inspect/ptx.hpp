#pragma once

#include <string>

#include "jitgemm/context.hpp"

namespace jitgemm::cli {

/// What NVRTC makes of a kernel's source for an architecture. The configuration is for its errors.
std::string ptx_of(const KernelText& kernel, const std::string& architecture, const KernelConfig& config);

}  // namespace jitgemm::cli
