#pragma once

#include <vector>

#include "kernels/legality.hpp"

namespace jitgemm {

/// Tile, stages and warps of the portable loop's candidates for inputs of a type on a device: the seeds' configurations
/// (Triton's matrix multiplication tutorial has eight for fp16 and eight for fp8) and deeper ones. Schedule fields are
/// at their default.
std::vector<KernelConfig> portable_tiles(const DeviceInfo& device, DataType a = f16);

/// The ways to deal out a tile's work, legal or not.
std::vector<KernelConfig> schedules_sm80(const KernelConfig& tile, const NormalProblem& normalised,
                                         const DeviceInfo& device);

/// All that are legal of these tiles x schedules x splits and grids x group sizes.
std::vector<KernelConfig> candidates_sm80(const NormalProblem& normalised, const DeviceInfo& device);

}  // namespace jitgemm
