#pragma once

#include "core/kernel_config.hpp"
#include "core/kernel_interface.hpp"

namespace jitgemm {

/// Everything about a launch that follows from (problem, configuration) alone. The one function that sizes both the
/// workspace that is asked for and the one that the kernel uses.
struct LaunchShape {
  device::Decomposition decomposition;  ///< what schedule.cuh works on
  int cluster = 1;                      ///< thread blocks of a cluster, which is one program
  int grid = 0;                         ///< thread blocks; 0 when there is nothing to write
  int threads = 0;
  std::size_t smem_bytes = 0;
  std::size_t partial_bytes = 0;  ///< slots for partial tiles
  int counters = 0;               ///< arrival counters of split tiles, zero before and after each launch
};

device::Partition partition_of(Schedule schedule);

LaunchShape launch_shape(const Problem& normalised, const KernelConfig& config);

}  // namespace jitgemm
