#include "kernels/legality.hpp"

#include "core/enumerators.hpp"
#include "core/groups.hpp"
#include "core/problem.hpp"
#include "kernels/dealing.hpp"
#include "kernels/family.hpp"
#include "kernels/kernel_problem.hpp"
#include "kernels/packing.hpp"
#include "kernels/parameters.hpp"
#include "util/integers.hpp"

namespace jitgemm {
namespace {

/// Thread blocks of all tiles, rounded up to whole clusters.
double tiles_of(const KernelConfig& c, const KernelProblem& p) {
  if (p.grouping == Grouping::offsets)
    return double(most_tile_rows(p, c)) *
           double(c.swap_ab ? ceil_div(p.m, c.block_m * c.cluster_m) : ceil_div(p.n, c.block_n * c.cluster_n)) *
           cluster_size_of(c);
  return double(ceil_div(p.m, c.block_m * c.cluster_m)) * double(ceil_div(p.n, c.block_n * c.cluster_n)) *
         double(p.batch) * cluster_size_of(c);
}

}  // namespace

std::string why_beyond_integers(const KernelConfig& c, const NormalProblem& normalised) {
  const KernelProblem p = kernel_problem(normalised, c);
  if (is_empty(p)) return {};
  constexpr std::int64_t most_rows = std::int64_t(1) << 31;
  constexpr double most = 1 << 30;
  if (round_up(p.m, c.block_m * c.cluster_m) > most_rows || round_up(p.n, c.block_n * c.cluster_n) > most_rows)
    return "tiles end at row and column 2^31 at most";
  // A group, and so a tile, may begin at any row.
  if (p.grouping == Grouping::offsets && (c.swap_ab ? p.n : p.m) + group_tile_rows(c) > most_rows)
    return "tiles of groups end at row 2^31 at most";
  const double tiles = tiles_of(c, p);
  if (tiles * c.splits >= most) return "tiles x splits is less than 2^30";
  if (c.grid > 0 && p.grouping != Grouping::along_k && tiles * double(ceil_div(p.k, c.block_k)) >= most)
    return "tiles x k-blocks is less than 2^30";
  return {};
}

std::string why_illegal(const KernelConfig& c, const NormalProblem& normalised, const DeviceInfo& device) {
  const KernelProblem p = kernel_problem(normalised, c);
  if (!is_known(c.main_loop) || !is_known(c.schedule)) return "main_loop and schedule are enumerators";
  const KernelFamily& family = family_of(c);
  if (std::string why = family.why_illegal(c, normalised, p, device); !why.empty()) return why;
  if (has_groups(p) && c.schedule != Schedule::persistent)
    return "groups, whose tiles the device counts, are persistent: a CTA takes tile after tile";
  if (has_groups(p) && packs(c)) return "no operands of groups are packed";
  if (packs(c) && !family.takes_packed)
    return "the " + std::string(to_string(c.main_loop)) + " main loop takes operands where they are";
  if (c.group_m < 0 || c.group_m > 64) return "group_m is 0..64";
  if (c.splits < 1 || c.splits > 64) return "splits is 1..64";
  if (c.splits > 1 && c.schedule != Schedule::split_k) return "only split_k has splits";
  if (c.grid < 0 || c.grid > 65535) return "grid is 0..65535";
  if (c.grid > 0 && c.schedule == Schedule::data_parallel) return "data_parallel has no grid of its own";
  if (const int cluster = cluster_size_of(c); c.grid % cluster != 0)
    return "grid is of whole clusters: a multiple of " + std::to_string(cluster);
  const Footprint footprint = family.footprint(parameters_of(c, p));
  if (const auto bytes = std::size_t(footprint.smem_bytes); bytes > device.smem_per_block)
    return "the stages need " + std::to_string(bytes) + " bytes of shared memory, the device has " +
           std::to_string(device.smem_per_block);
  if (std::string why = why_beyond_integers(c, normalised); !why.empty()) return why;
  if (const Slab slab = slab_of(normalised, c); packs(c) && slab.rows == 0) {
    return "the packed operands of a tile take at most " + std::to_string(max_packed_bytes >> 20) + " MiB of workspace";
  } else if (!is_whole(slab, normalised) && c.schedule != Schedule::data_parallel &&
             c.schedule != Schedule::persistent) {
    return "packed operands of more than " + std::to_string(max_packed_bytes >> 20) +
           " MiB are multiplied without cutting tiles";
  }
  const bool cuts = c.splits > 1 || (c.grid > 0 && c.schedule != Schedule::persistent);
  if (cuts && tiles_of(c, p) * footprint.arriving_groups > max_counters)
    return "split tiles x consumer groups is at most " + std::to_string(max_counters);
  return {};
}

}  // namespace jitgemm
