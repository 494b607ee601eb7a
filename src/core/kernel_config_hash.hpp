#pragma once

#include <cstddef>

#include "jitgemm/kernel_config.hpp"

namespace jitgemm {

std::size_t hash_value(const KernelConfig& config);

}  // namespace jitgemm
