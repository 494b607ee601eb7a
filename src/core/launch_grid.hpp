#pragma once

#include <cstddef>

namespace jitgemm {

/// What the driver is told of a launch.
struct LaunchGrid {
  int cluster = 1;  ///< thread blocks of a cluster, which is one program
  int grid = 0;     ///< thread blocks; 0 when there is nothing to write
  int threads = 0;
  std::size_t smem_bytes = 0;
};

}  // namespace jitgemm
