#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/device_info.hpp"
#include "core/kernel_interface.hpp"
#include "core/problem.hpp"
#include "jitgemm/kernel_config.hpp"
#include "kernels/sm90/tensor_maps.hpp"

namespace jitgemm {

/// What a thread block of a kernel takes.
struct Footprint {
  int threads = 0, smem_bytes = 0;
  int arriving_groups = 1;  ///< of warps that count their arrival at a split tile apart
};

/// The files of templates/ that a kernel is put together from, in order.
struct TemplateFiles {
  std::vector<std::string> geometry, ptx, main_loop;
};

/// A kind of kernel: one main loop with its geometry, its rules and its files. To add one, write a folder beside this
/// file, its templates, a folder in plan/, and a row in each of the two tables.
struct KernelFamily {
  MainLoop main_loop;  ///< its name is that of the geometry's namespace
  Footprint (*footprint)(const device::KernelParameters& parameters);
  /// Empty, or the rule that a configuration of the family breaks, besides those of all families.
  std::string (*why_illegal)(const KernelConfig& config, const NormalProblem& normalised,
                             const KernelProblem& kernel_problem, const DeviceInfo& device);
  TemplateFiles (*template_files)(DataType a);
  /// The macros in front of a kernel; null if there are none.
  std::string (*macros)(const KernelProblem& kernel_problem, const KernelConfig& config);
  /// What its kernels copy by TMA; null if they copy nothing so.
  TensorMaps (*tensor_maps)(const NormalProblem& normalised, const KernelProblem& kernel_problem,
                            const KernelConfig& config);
  /// The blocks of a launch that run at once; null if that is not known.
  std::int64_t (*block_slots)(const KernelConfig& config, const KernelProblem& kernel_problem,
                              const DeviceInfo& device);
  bool takes_packed;          ///< operands that were packed into the workspace
  bool promotes;              ///< where Accumulation::promoted asks for it; else all sums are of the accumulator's type
  bool has_one_tile_kernels;  ///< data-parallel launches have kernels of their own, device::Partition::one_tile
  bool adapts_to_groups;      ///< their tiles are fetched one by one, and those of rows as wide as these ask for
  bool portable;              ///< every GPU since sm_80 has the instructions
};

/// Throws Error{internal} for what is no enumerator.
const KernelFamily& family_of(MainLoop main_loop);
inline const KernelFamily& family_of(const KernelConfig& config) { return family_of(config.main_loop); }

extern const KernelFamily sm80_family, sm90_family;
inline const std::array kernel_families{&sm80_family, &sm90_family};

}  // namespace jitgemm
