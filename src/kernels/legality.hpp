#pragma once

#include <string>

#include "core/device_info.hpp"
#include "core/problem.hpp"
#include "jitgemm/kernel_config.hpp"

namespace jitgemm {

// These take the problem before packing and swapping; they make its kernel_problem() themselves.

/// Empty if the configuration can run the (normalised) problem on the device, else the rule that it breaks. The rules
/// that concern the configuration alone are the geometry's, which the kernel asserts, too.
std::string why_illegal(const KernelConfig& config, const NormalProblem& problem, const DeviceInfo& device);

/// Of these rules, those that keep the 32-bit sums of launch_shape() and of the kernel from wrapping: what breaks one
/// of them has no launch shape.
std::string why_beyond_integers(const KernelConfig& config, const NormalProblem& problem);

/// Most counters of split tiles that one launch may use: the size of a Context's counter block.
inline constexpr int max_counters = 1 << 17;

}  // namespace jitgemm
