#pragma once

#include "core/kernel_interface.hpp"
#include "core/tensor_map_spec.hpp"
#include "kernels/launch_shape.hpp"
#include "kernels/packing.hpp"
#include "util/function_ref.hpp"

namespace jitgemm {

/// The rows of a shard whose sums travel together, and how many parts of them a kernel counts.
struct ShardChunks {
  int rows = 0, count = 0;
  /// Of the chunk: tiles, times the consumers that store one.
  int parts(int chunk) const { return chunk + 1 < count ? whole_parts : last_parts; }
  int whole_parts = 0, last_parts = 0;
};
/// Whole groups of the raster order, of at least some MiB: what is computed together.
ShardChunks chunks_of_shard(const NormalProblem& problem, const KernelConfig& config, const LaunchShape& shape);

/// What a call of several ranks has besides its operands: device::ShardArguments.
struct ShardOperands {
  int rank = 0, ranks = 1;
  const unsigned *epoch = nullptr, *arrived = nullptr;
  const void* own_a = nullptr;  ///< gathered_a: of this rank; its operand A is where all shards come to
  std::int64_t own_a_ld = 0;
  unsigned* stored = nullptr;
  ShardChunks chunks = {};
  void* sent = nullptr;            ///< scattered_d: the sums of all shards, one after the other
  const void* received = nullptr;  ///< what comes from all ranks, one after the other
  std::int64_t staged_ld = 0;      ///< of both
  device::Patience patience = {};
};

/// The scratch of one call: LaunchShape::workspace_bytes() bytes, 256-byte aligned. Counters are zero before and after
/// it.
struct Workspace {
  void* memory = nullptr;
  unsigned* counters = nullptr;
  unsigned* broken_groups = nullptr;  ///< of calls with groups, see BrokenGroups; null where none can be
  const ShardOperands* shards = nullptr;  ///< of calls of several ranks
};

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
device::BatchBlockScalesArguments make_batch_block_scales_arguments(const device::Arguments& arguments,
                                                                    const NormalProblem& whole,
                                                                    const KernelConfig& config, std::int64_t row,
                                                                    std::int64_t column);
device::GroupBlockScalesArguments make_group_block_scales_arguments(const device::GroupArguments& arguments,
                                                                    const NormalProblem& problem,
                                                                    const KernelConfig& config);

/// Those of a kernel with an epilogue of the caller's own, if the problem has one: of a launch that begins at (row,
/// column) of the product.
device::CustomEpilogueArguments make_custom_epilogue_arguments(const device::Arguments& arguments,
                                                               const NormalProblem& problem, const Operands& operands,
                                                               std::int64_t row, std::int64_t column);

/// Those of a kernel of groups.
device::GroupArguments make_group_arguments(const device::CustomEpilogueArguments& arguments,
                                            const NormalProblem& problem, const KernelConfig& config,
                                            const Operands& operands, const Workspace& workspace);

/// Those of a kernel of several ranks.
device::ShardArguments make_shard_arguments(const device::Arguments& arguments, const NormalProblem& problem,
                                            const KernelConfig& config, const ShardOperands& shards, const EncodeTensorMap& encode);

/// Those of the kernel that packs operands before it. Of an operand without blocks in `packing`, nothing is packed.
/// `all_columns` are those of all of D, of which the problem may be a slab: what halves of B are apart.
device::PackArguments make_pack_arguments(const NormalProblem& problem, const KernelConfig& config,
                                          const Packing& packing, const LaunchShape& shape, const Operands& operands,
                                          const Workspace& workspace, std::int64_t all_columns);

/// Those of the kernel that checks D, without what a task of it is given.
device::CheckArguments make_check_arguments(const NormalProblem& problem, const Operands& operands);

/// From an element of the product on: what it and those right of and below it are computed from.
Operands operands_at(const NormalProblem& problem, const Operands& operands, std::int64_t row, std::int64_t column);

}  // namespace jitgemm
