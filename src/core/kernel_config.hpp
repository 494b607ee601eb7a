#pragma once

#include <string>

#include "core/device_info.hpp"
#include "core/kernel_interface.hpp"
#include "jitgemm/kernel_config.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

// The problem is always the one that was asked for: what a configuration packs, these functions know of
// kernel_problem().

/// Empty if the configuration can run the (normalised) problem on the device, else the rule that it breaks. The rules
/// that concern the configuration alone are the geometry's, which the kernel asserts, too.
std::string why_illegal(const KernelConfig& config, const Problem& problem, const DeviceInfo& device);

/// Of these rules, those that keep the 32-bit sums of launch_shape() and of the kernel from wrapping: what breaks one
/// of them has no launch shape.
std::string why_beyond_integers(const KernelConfig& config, const Problem& problem);

/// Most counters of split tiles that one launch may use: the size of a Context's counter block.
inline constexpr int max_counters = 1 << 17;

/// What the geometry of the kernel depends on, which is of the kernel's problem: templates/geometry.cuh.
device::KernelParameters parameters_of(const KernelConfig& config, const Problem& kernel_problem);

/// Thread blocks.
int cluster_size_of(const KernelConfig& config);

/// Groups of warps of a block that count their arrival at a cut tile apart.
int consumer_groups_of(const KernelConfig& config);

/// Threads of a block, and bytes of dynamic shared memory.
int threads_of(const KernelConfig& config);
std::size_t smem_bytes_of(const KernelConfig& config, const Problem& problem);
/// The same of what kernel_problem() says.
std::size_t smem_bytes_of_kernel(const KernelConfig& config, const Problem& kernel_problem);

std::size_t hash_value(const KernelConfig& config);

}  // namespace jitgemm
