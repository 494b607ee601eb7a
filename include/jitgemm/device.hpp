#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "jitgemm/export.hpp"

namespace jitgemm {

struct DeviceDescription {
  std::string name;
  std::string architecture;  ///< "sm_90a"
  int sm_count = 0;
  std::size_t smem_bytes_per_block = 0, l2_bytes = 0, memory_bytes = 0;
  bool emulated = false;
};

/// The visible CUDA devices; empty without a driver. Throws Error when the driver does not answer.
JITGEMM_EXPORT std::vector<DeviceDescription> cuda_devices();

}  // namespace jitgemm
