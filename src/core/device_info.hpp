#pragma once

#include <array>
#include <string>

#include "jitgemm/device.hpp"

namespace jitgemm {

inline constexpr std::size_t reserved_smem_bytes = 1024;  ///< of each block, by the driver

/// The facts of a device that choices depend on.
struct DeviceInfo {
  std::string name;
  int compute_capability = 0;  ///< 10 * major + minor: 80, 86, 89, 90, 100, 120
  int sm_count = 0;
  std::size_t smem_per_block = 0;  ///< bytes, with the opt-in
  std::size_t smem_per_sm = 0;     ///< bytes
  std::size_t l2_bytes = 0, memory_bytes = 0;
  bool emulated = false;
  bool dependent_launch = true;           ///< ContextOptions::dependent_launch
  double clock_ghz = 0, memory_gb_s = 0;  ///< at most; 0: not known
  /// By the size of a cluster, how many run at once where each block has an SM of its own; 0: not known.
  using ClusterCounts = std::array<int, 9>;
  ClusterCounts clusters_at_once = {};

  /// The exact target of a kernel: "sm_80", "sm_90a", "sm_100a", ...
  std::string architecture() const;
  bool has_wgmma() const { return compute_capability == 90; }
  /// Whether kernels let the next one on the stream start early, and wait for the one before them.
  bool launches_dependents() const { return dependent_launch && compute_capability >= 90; }
  /// Of mma.sync; elsewhere the assembler spells its 8-bit floating-point types out, anew for each instruction.
  bool has_mma_fp8() const { return compute_capability == 89 || compute_capability >= 120; }
};

/// A typical device of an architecture ("sm_90a": H100/H200 with 132 SMs), for compiling without one.
/// Throws Error{invalid_option} for an unknown name.
DeviceInfo device_info_for(const std::string& architecture);

DeviceDescription describe(const DeviceInfo& device);

}  // namespace jitgemm
