#include "kernels/parameters.hpp"

#include "core/groups.hpp"
#include "core/pairing.hpp"
#include "core/type_rules.hpp"
#include "kernels/family.hpp"
#include "kernels/launch_shape.hpp"

namespace jitgemm {

bool narrows(const KernelConfig& c, const KernelProblem& p) {
  return has_groups_of_rows(p) && family_of(c).adapts_to_groups && c.swap_ab && c.cluster_n == 1;
}

bool fetches(const KernelConfig& c, const KernelProblem& p) { return has_groups(p) && family_of(c).adapts_to_groups; }

device::KernelParameters parameters_of(const KernelConfig& c, const KernelProblem& p) {
  return {.block_m = c.block_m,
          .block_n = c.block_n,
          .block_k = c.block_k,
          .stages = c.stages,
          .warps = c.warps,
          .cluster_m = c.cluster_m,
          .cluster_n = c.cluster_n,
          .cluster_k = c.cluster_k,
          .cluster_at_launch = c.cluster_at_launch,
          .ping_pong = c.ping_pong,
          .swap_ab = c.swap_ab,
          .one_tile = partition_of(c) == device::Partition::one_tile,
          .split_k = partition_of(c) == device::Partition::split_k,
          .promoted = p.accumulation == Accumulation::promoted && family_of(c).promotes,
          .tensor_cores = !is_simt(p.a.type),
          .size_a = int(size_of(p.a.type)),
          .size_accumulator = int(size_of(accumulator_of(p))),
          .size_d = int(size_of(p.d.type)),
          .a_k_major = p.a.layout == Layout::row_major,
          .b_k_major = p.b.layout == Layout::column_major,
          .align_a = p.a.alignment,
          .align_b = p.b.alignment,
          .align_d = p.d.alignment,
          .block_scales = has_block_scales(p),
          .row_scales = p.a.scaling == Scaling::block_1x128,
          .column_scales = p.b.scaling == Scaling::block_1x128,
          .groups_of_rows = has_groups_of_rows(p),
          .offset_groups = p.grouping == Grouping::offsets,
          .scales_d = has_own_scales_d(p),
          .pairs = has_pairs(p),
          .narrows = narrows(c, p),
          .fetches = fetches(c, p),
          .scatters_d = p.sharding == Sharding::scattered_d};
}

}  // namespace jitgemm
