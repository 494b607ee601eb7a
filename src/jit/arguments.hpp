#pragma once

#include <span>

#include "core/kernel_interface.hpp"
#include "core/tensor_map_spec.hpp"
#include "kernels/launch_shape.hpp"
#include "kernels/packing.hpp"
#include "util/function_ref.hpp"

namespace jitgemm {

/// What a call of several ranks has besides its operands: device::ShardArguments.
struct ShardOperands {
  int rank = 0, ranks = 1;
  const unsigned *epoch = nullptr, *arrived = nullptr;
  const void* own_a = nullptr;  ///< gathered_a: of this rank; its operand A is where all shards come to
  std::int64_t own_a_ld = 0;
  void* sent = nullptr;
  std::array<void*, device::most_ranks> sent_to = {};
  std::array<unsigned*, device::most_ranks> arrived_at = {};
  const void* received = nullptr;
  std::int64_t staged_ld = 0;
  device::Patience patience = {};
};

/// Flags of a shard: one for each consumer of each tile.
int places_of_shard(const KernelConfig& config, const LaunchShape& shape);

/// The scratch of one call: LaunchShape::workspace_bytes() bytes, 256-byte aligned. Counters are zero before and after
/// it.
struct Workspace {
  void* memory = nullptr;
  unsigned* counters = nullptr;
  device::GroupFaults* group_faults = nullptr;  ///< where calls with groups count them; null where there are none
  const ShardOperands* shards = nullptr;        ///< of calls of several ranks
};

/// Which of the structs of templates/arguments.cuh and its neighbours a GEMM kernel takes.
enum class ArgumentsKind : std::uint8_t {
  plain,
  custom_epilogue,
  epilogue_scales,
  own_scales,
  block_scales,
  batch_block_scales,
  groups,
  group_block_scales,
  shards,
};
ArgumentsKind arguments_kind(const Problem& problem, Sharding sharding);

/// Encodes TMA descriptors, and may remember them.
using EncodeTensorMap = FunctionRef<device::TensorMap(const TensorMapSpec&)>;

/// Fills the GEMM kernel's arguments from a normalised problem, its shape and its operands.
device::Arguments make_arguments(const NormalProblem& problem, const KernelConfig& config, const LaunchShape& shape,
                                 const Operands& operands, const Workspace& workspace, const EncodeTensorMap& encode);

/// Of a part that begins at (row, column), too.
device::OwnScalesArguments make_own_scales_arguments(const device::BlockScalesArguments& arguments,
                                                     const NormalProblem& whole, std::int64_t row, std::int64_t column,
                                                     const Operands& operands);
/// Those of a kernel with scales of blocks: of a launch whose first element of the `whole` problem's D is (row,
/// column).
device::BlockScalesArguments make_block_scales_arguments(const device::Arguments& arguments, const NormalProblem& whole,
                                                         const KernelConfig& config, std::int64_t row,
                                                         std::int64_t column);
device::BatchBlockScalesArguments make_batch_block_scales_arguments(const device::BlockScalesArguments& arguments,
                                                                    const NormalProblem& whole,
                                                                    const KernelConfig& config);
device::GroupBlockScalesArguments make_group_block_scales_arguments(const device::GroupArguments& arguments,
                                                                    const NormalProblem& problem,
                                                                    const KernelConfig& config);

/// Those of a kernel with an epilogue of the caller's own, if the problem has one: of a launch whose first element of
/// the `whole` problem's product is (row, column).
device::CustomEpilogueArguments make_custom_epilogue_arguments(const device::Arguments& arguments,
                                                               const NormalProblem& whole, const Operands& operands,
                                                               std::int64_t row, std::int64_t column);

/// Those of a kernel whose own epilogue comes with more of scales than where they are: of a launch whose first element
/// of the `whole` problem's product is (row, column).
device::EpilogueScalesArguments make_epilogue_scales_arguments(const device::CustomEpilogueArguments& arguments,
                                                               const NormalProblem& whole, const KernelConfig& config,
                                                               std::int64_t row, std::int64_t column);

/// Those of a kernel of groups.
device::GroupArguments make_group_arguments(const device::CustomEpilogueArguments& arguments,
                                            const NormalProblem& problem, const KernelConfig& config,
                                            const Operands& operands, const Workspace& workspace);

/// Those of a kernel of several ranks.
device::ShardArguments make_shard_arguments(const device::Arguments& arguments, const NormalProblem& problem,
                                            const KernelConfig& config, const LaunchShape& shape,
                                            const ShardOperands& shards, const EncodeTensorMap& encode);

/// Those of the kernel that packs operands before it. Of an operand without blocks in `packing`, nothing is packed.
/// `all_columns` are those of all of D, of which the problem may be a slab: what halves of B are apart.
device::PackArguments make_pack_arguments(const NormalProblem& problem, const KernelConfig& config,
                                          const Packing& packing, const LaunchShape& shape, const Operands& operands,
                                          const Workspace& workspace, std::int64_t all_columns);

/// Those of the kernel that adds up `sources`: the problem's C, bias, D and scale_d as they lie, and of each source the
/// rows of D, `ld_sources` elements apart.
device::SumEpilogueArguments make_sum_epilogue_arguments(const NormalProblem& problem, const Operands& operands,
                                                         std::span<const void* const> sources, std::int64_t ld_sources);

/// Those of the kernel that adds up the ranks' sums in one step, but for what is the ranks' own: the problem's C, bias,
/// D and scale_d as they lie, and this rank's sums, packed.
device::OneShotArguments make_one_shot_arguments(const NormalProblem& problem, const Operands& operands,
                                                 const void* sums);

/// Those of the kernel that checks D, without what a task of it is given.
device::CheckArguments make_check_arguments(const NormalProblem& problem, const Operands& operands);

/// From an element of the product on: what it and those right of and below it are computed from.
Operands operands_at(const NormalProblem& problem, const Operands& operands, std::int64_t row, std::int64_t column);

}  // namespace jitgemm
