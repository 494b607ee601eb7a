#pragma once

#include <string>

#include "core/device_info.hpp"
#include "jitgemm/kernel_config.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

// The problem is always the one that was asked for: what a configuration packs, these functions know of
// kernel_problem().

/// Empty if the configuration can run the (normalised) problem on the device, else the rule that it breaks. The rules
/// that concern the configuration alone stand in the templates as static_asserts, in the same words.
std::string why_illegal(const KernelConfig& config, const Problem& problem, const DeviceInfo& device);

/// Of these rules, those that keep the 32-bit sums of launch_shape() and of the kernel from wrapping: what breaks one
/// of them has no launch shape.
std::string why_beyond_integers(const KernelConfig& config, const Problem& problem);

/// Most counters of split tiles that one launch may use: the size of a Context's counter block.
inline constexpr int max_counters = 1 << 17;

/// How the warps that multiply share a tile.
struct WarpGrid {
  int m, n;
};
WarpGrid warp_grid_of(const KernelConfig& config);

/// Thread blocks.
int cluster_size_of(const KernelConfig& config);

/// Of the sm90 main loop: rows of the tile that one consumer warpgroup multiplies.
int consumer_rows_of(const KernelConfig& config);

/// Of the sm90 main loop: the most accumulators that a thread of so many warps holds.
int most_accumulators(int warps, Accumulation accumulation);

/// Of the sm90 main loop: thread blocks whose registers fit on an SM.
int blocks_per_sm_of(const KernelConfig& config, const Problem& problem);

/// Groups of warps of a block that count their arrival at a cut tile apart.
int consumer_groups_of(const KernelConfig& config);

/// The boxes by which the sm90 main loop stores D: 128 bytes across, or as many as divide a block's part of a row; with
/// swap_ab as many rows as divide the block's part of a column. Without columns if there is none.
struct DBox {
  int columns, rows;
};
DBox d_box_of(const KernelConfig& config, const Problem& problem);

/// Whether the kernel stores D by TMA and so needs a map of D.
bool stores_by_tma(const KernelConfig& config, const Problem& problem);

/// Threads of a block, and bytes of dynamic shared memory.
int threads_of(const KernelConfig& config);
std::size_t smem_bytes_of(const KernelConfig& config, const Problem& problem);
/// The same of what kernel_problem() says.
std::size_t smem_bytes_of_kernel(const KernelConfig& config, const Problem& kernel_problem);

std::size_t hash_value(const KernelConfig& config);

}  // namespace jitgemm
