#include "core/kernel_config_hash.hpp"

namespace jitgemm {

std::size_t hash_value(const KernelConfig& c) {
  std::size_t h = 0;
  for (const int x : {int(c.main_loop), c.block_m, c.block_n, c.block_k, c.group_m, c.stages, c.warps, c.cluster_m,
                      c.cluster_n, c.cluster_k, int(c.ping_pong), int(c.swap_ab), int(c.pack_a) * 2 + int(c.pack_b),
                      int(c.schedule), c.splits, c.grid, int(c.cluster_at_launch)})
    h = (h ^ std::size_t(x)) * 0x9e3779b97f4a7c15ull;
  return h ^ h >> 32;
}

}  // namespace jitgemm
