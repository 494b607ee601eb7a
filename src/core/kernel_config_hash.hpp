#pragma once

#include <cstddef>

#include "jitgemm/kernel_config.hpp"

namespace jitgemm {

std::size_t hash_value(const KernelConfig& config);
/// Configurations as keys.
struct KernelConfigHash {
  std::size_t operator()(const KernelConfig& config) const { return hash_value(config); }
};

}  // namespace jitgemm
