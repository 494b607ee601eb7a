#include "backend/emulator/interface.hpp"

#include "backend/emulator/operations.hpp"

namespace jitgemm::emulator {

const device::emulator::Interface& interface() {
  static constexpr device::emulator::Interface table{
      .version = device::emulator::Interface::current_version,
      .thread_index = [] { return current->index; },
      .block_index = [] { return current->block->index; },
      .grid_size = [] { return current->launch->grid(); },
      .dynamic_smem = [] { return current->block->memory.base(); },
      .warp_uniform = warp_uniform,
      .bar_sync = bar_sync,
      .bar_red_or = bar_red_or,
      .warp_sync = warp_sync,
      .st_shared = st_shared,
      .ld_shared = ld_shared,
      .ldmatrix_x4 = ldmatrix_x4,
      .stmatrix = stmatrix,
      .misaligned_global = misaligned_global,
      .ld_global_cg = ld_global_cg,
      .st_global_cg = st_global_cg,
      .atom_inc_acq_rel_gpu = atom_inc_acq_rel_gpu,
      .cp_async = cp_async,
      .cp_async_commit_group = cp_async_commit_group,
      .cp_async_wait_group = cp_async_wait_group,
      .mma = mma,
      .mbarrier_init = mbarrier_init,
      .fence_mbarrier_init = fence_mbarrier_init,
      .mbarrier_arrive = mbarrier_arrive,
      .mbarrier_arrive_expect_tx = mbarrier_arrive_expect_tx,
      .mbarrier_wait_parity = mbarrier_wait_parity,
      .tma_load_3d = tma_load_3d,
      .tma_store_3d = tma_store_3d,
      .tma_store_commit_group = tma_store_commit_group,
      .tma_store_wait_group_read = tma_store_wait_group_read,
      .fence_proxy_async = fence_proxy_async,
      .wgmma_fence = wgmma_fence,
      .wgmma_commit_group = wgmma_commit_group,
      .wgmma_wait_group = wgmma_wait_group,
      .wgmma = wgmma,
      .setmaxnreg = setmaxnreg,
      .cluster_rank = cluster_rank,
      .cluster_arrive = cluster_arrive,
      .cluster_arrive_relaxed = cluster_arrive_relaxed,
      .cluster_wait = cluster_wait,
      .map_to_rank = map_to_rank,
      .mbarrier_arrive_cluster = mbarrier_arrive_cluster,
      .st_cluster_v4 = st_cluster_v4,
      .tma_load_multicast_3d = tma_load_multicast_3d,
      .griddepcontrol_wait = griddepcontrol_wait,
      .griddepcontrol_launch_dependents = griddepcontrol_launch_dependents,
      .check_dependencies = check_dependencies,
  };
  return table;
}

}  // namespace jitgemm::emulator
