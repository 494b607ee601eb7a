#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/device_info.hpp"
#include "core/problem.hpp"
#include "jitgemm/kernel_config.hpp"
#include "kernels/kernel_problem.hpp"
#include "util/integers.hpp"

namespace jitgemm {

inline constexpr int fewest_stages = 3, most_splits = 8;  ///< of candidates

/// Steps of k, below which a part of a split tile is all prologue.
inline constexpr std::int64_t min_steps_per_split = 4;

/// Into how many parts, `most` at most, it pays to split a tile of so many k-blocks, whose parts a cluster cuts again.
inline int splits_of(std::int64_t k_blocks, int cluster_k, std::int64_t most) {
  const std::int64_t parts = quotient(k_blocks, cluster_k * min_steps_per_split);
  return int(std::clamp<std::int64_t>(most, 1, std::clamp<std::int64_t>(parts, 1, most_splits)));
}

/// One swizzled row of 128 bytes.
inline int block_k_sm90(DataType a) { return 128 / int(size_of(a)); }

/// With or without swapped operands: the problem as the kernel sees it, and the tiles that are worth a look. Each way
/// to share a tile's rows among warpgroups, with the clusters and the tile widths that fill whole waves of the device.
/// Operands that the main loop takes only packed are packed.
struct TilesSm90 {
  KernelConfig form;
  KernelProblem problem;                 ///< or its largest slab
  bool whole;                            ///< no slabs
  std::vector<KernelConfig> tiles = {};  ///< data-parallel, with as many stages as fit
};
std::array<TilesSm90, 2> tiles_sm90(const NormalProblem& normalised, const DeviceInfo& device);

/// A kernel whose launch chooses the cluster, in each that candidates have.
std::vector<KernelConfig> clusters_sm90(const KernelConfig& kernel);

/// The ways to deal out a tile's work, legal or not.
std::vector<KernelConfig> schedules_sm90(const KernelConfig& tile, const KernelProblem& kernel_problem,
                                         const DeviceInfo& device);

/// All of these that are legal.
std::vector<KernelConfig> candidates_sm90(const NormalProblem& normalised, const DeviceInfo& device);

}  // namespace jitgemm
