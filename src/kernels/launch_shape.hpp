#pragma once

#include "core/device_info.hpp"
#include "core/kernel_interface.hpp"
#include "core/launch_grid.hpp"
#include "core/problem.hpp"
#include "jitgemm/kernel_config.hpp"

namespace jitgemm {

/// Everything about the GEMM kernel's launch and the call's workspace that follows from (problem, configuration) alone.
/// The one function that sizes both the workspace that is asked for and the one that the kernels use.
struct LaunchShape : LaunchGrid {
  device::Decomposition decomposition;  ///< what schedule.cuh works on
  std::size_t partial_bytes = 0;        ///< slots for partial tiles
  int counters = 0;              ///< of arrivals at split tiles, or of fetched tiles: zero before and after each launch
  std::size_t packed_bytes = 0;  ///< packed operands

  /// Where the packed operands begin in the workspace, behind the slots.
  std::size_t packed_offset() const { return (partial_bytes + 255) / 256 * 256; }
  std::size_t workspace_bytes() const { return packed_bytes > 0 ? packed_offset() + packed_bytes : partial_bytes; }
};

device::Partition partition_of(const KernelConfig& config);

/// The part of a configuration that its kernel is compiled for: without grid, splits and packing, and of the schedules
/// with one partition the one that stands for them.
KernelConfig compiled_part(const KernelConfig& config);

/// Of a configuration that why_beyond_integers() says nothing against.
LaunchShape launch_shape(const NormalProblem& normalised, const KernelConfig& config);
/// The same, with what the device has a say in: how launches of a stream overlap.
LaunchShape launch_shape_on(const DeviceInfo& device, const NormalProblem& normalised, const KernelConfig& config);

}  // namespace jitgemm
