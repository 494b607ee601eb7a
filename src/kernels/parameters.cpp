#include "kernels/parameters.hpp"

#include "core/type_rules.hpp"
#include "kernels/family.hpp"

namespace jitgemm {

device::KernelParameters parameters_of(const KernelConfig& c, const Problem& p) {
  return {.block_m = c.block_m,
          .block_n = c.block_n,
          .block_k = c.block_k,
          .stages = c.stages,
          .warps = c.warps,
          .cluster_m = c.cluster_m,
          .cluster_n = c.cluster_n,
          .cluster_k = c.cluster_k,
          .ping_pong = c.ping_pong,
          .swap_ab = c.swap_ab,
          .whole_tiles = c.schedule == Schedule::data_parallel,
          .promoted = p.accumulation == Accumulation::promoted && family_of(c).promotes,
          .tensor_cores = !is_simt(p.a),
          .size_a = int(size_of(p.a)),
          .size_accumulator = int(size_of(accumulator_of(p))),
          .size_d = int(size_of(p.d)),
          .a_k_major = p.layout_a == Layout::row_major,
          .b_k_major = p.layout_b == Layout::column_major,
          .align_a = p.align_a,
          .align_b = p.align_b,
          .align_d = p.align_d};
}

}  // namespace jitgemm
