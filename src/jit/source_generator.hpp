#pragma once

#include "core/device_info.hpp"
#include "core/kernel.hpp"
#include "core/problem.hpp"
#include "jitgemm/kernel_config.hpp"

namespace jitgemm {

/// The kernel source of (normalised problem, configuration): templates/ put together from whole files, constants in
/// front. Depends on the problem's types, layouts, alignments and epilogue, and on the configuration without splits and
/// grid; not on sizes, scalars or the SM count. Deterministic, byte for byte.
KernelSource generate(const NormalProblem& problem, const KernelConfig& config, const DeviceInfo& device);

/// The name of its function, in which tile, types, layouts and partition are.
std::string entry_of(const NormalProblem& problem, const KernelConfig& config);

/// A text that is the same where generate() gives the same source, and much cheaper.
std::string kernel_identity(const NormalProblem& problem, const KernelConfig& config, const DeviceInfo& device);

/// The source of the kernel that packs operands before it, for a configuration that packs some. Depends on the element
/// size and on what is transposed.
KernelSource generate_packing(const NormalProblem& problem, const KernelConfig& config, const DeviceInfo& device);

/// The source of the kernel that the tuner checks D with. Depends on the problem's types and epilogue, and on whether
/// it is one matrix; not on vectors of scales, whose problems are not measured (Chooser).
KernelSource generate_check(const NormalProblem& problem, const DeviceInfo& device);

/// The source of the kernel that begins a call of several ranks.
KernelSource generate_begin_call(const DeviceInfo& device);

/// The source of the kernel that adds up what ranks have of a product and applies the problem's epilogue to the sum.
/// Depends on types and epilogue, and on whether every row of every operand begins where a pair of elements may.
KernelSource generate_sum_epilogue(const NormalProblem& problem, bool in_pairs, const DeviceInfo& device);

/// The source of the kernel that adds up the ranks' sums in one step and applies the problem's epilogue. Depends on
/// types and epilogue, and on how many neighbours of a row a thread has at a time: 1, 2 or 4, at most 8 bytes of sums.
KernelSource generate_one_shot(const NormalProblem& problem, int elements, const DeviceInfo& device);

/// Whether this version of the library with these templates makes such sources: no call asks for another's.
bool is_current(const KernelSource& source);

}  // namespace jitgemm
