#pragma once

#include <vector>

#include "core/kernel_config.hpp"

namespace jitgemm {

/// Tile, stages and warps of the candidates for inputs of a type on a device: the seeds' configurations (Triton's matrix
/// multiplication tutorial has eight for fp16 and eight for fp8) and the rest of the portable list, and on sm_90a the Hopper
/// tiles. Schedule fields are at their default.
std::vector<KernelConfig> default_tiles(const DeviceInfo& device, DataType a = f16);

/// Every legal configuration of a normalised problem: tiles x schedules x splits and grids x group sizes.
std::vector<KernelConfig> candidates(const Problem& problem, const DeviceInfo& device);

}  // namespace jitgemm
