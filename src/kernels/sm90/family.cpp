// The Hopper kernels: TMA, wgmma, warpgroups that produce and that consume. sm_90a.
#include "kernels/family.hpp"
#include "core/groups.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "geometry_sm90.cuh"
#include "kernels/kernel_problem.hpp"
#include "kernels/launch_shape.hpp"
#include "kernels/packing.hpp"
#include "kernels/parameters.hpp"
#include "kernels/sm90/residence.hpp"
#include "kernels/sm90/wgmma_macros.hpp"
#include "util/integers.hpp"

namespace jitgemm {
namespace {

Footprint footprint(const device::KernelParameters& parameters) {
  const device::sm90::Geometry geometry = device::sm90::geometry(parameters);
  return {.threads = geometry.threads, .smem_bytes = geometry.smem_bytes, .arriving_groups = geometry.arriving_groups};
}

/// Of a problem of several ranks.
std::string why_unshardable(const KernelConfig& c, const NormalProblem& p, const device::sm90::Geometry& geometry,
                            const DeviceInfo& device) {
  if (c.swap_ab) return "shards are of rows that a kernel has as such: swap_ab is false";
  if (packs(c)) return "no operands of shards are packed";
  // One-tile kernels, half of whose CTAs wait for A from the start, took 480 us where in turn it was 170.
  if (c.schedule != Schedule::persistent) return "tiles of shards are whole, and taken in their order: persistent";
  if (p.sharding != Sharding::scattered_d) return {};
  if (c.grid < 1 || c.grid > device.sm_count * geometry.ctas_per_sm)
    return "CTAs that wait for other ranks are resident together: a grid that fits the device";
  return {};
}

/// By the caller's names, which the geometry does not know: a kernel that swaps operands has the other one as its A.
std::string why_unaligned(const KernelConfig& c, const KernelProblem& p) {
  const Matrix &a = c.swap_ab ? p.b : p.a, &b = c.swap_ab ? p.a : p.b;
  const auto why = [&p](const char* name, const char* pack, const Matrix& matrix) {
    if (matrix.alignment >= 16) return std::string();
    return std::string(name) + " is aligned to " + std::to_string(matrix.alignment) +
           " bytes, and TMA loads rows and matrices from multiples of 16 on: align its pointer, leading dimension and "
           "stride" +
           (has_groups(p) ? "" : std::string(", or pack it (") + pack + ")");
  };
  std::string of_a = why("A", "pack=a", a);
  return of_a.empty() ? why("B", "pack=b", b) : of_a;
}

/// What has a place in a cluster's order that the kernel was made for, or sums that it shares.
std::string why_no_cluster_at_launch(const KernelConfig& c, const NormalProblem& p) {
  const device::Partition partition = partition_of(c);
  if (partition != device::Partition::one_tile && partition != device::Partition::whole_tiles)
    return "a launch chooses the cluster of whole tiles: data_parallel or persistent";
  if (has_groups(p) || p.sharding != Sharding::none) return "a launch chooses no cluster of groups, nor of shards";
  return {};
}

std::string why_illegal(const KernelConfig& c, const NormalProblem& normalised, const KernelProblem& p,
                        const DeviceInfo& device) {
  if (!device.has_wgmma()) return "the sm90 main loop needs an sm_90a device";
  if (interleaves_b(normalised) && !c.pack_b)
    return std::string("the sm90 main loop takes pairs of columns of a row-major B of 16-bit elements packed") +
           (has_groups(p) ? ", and packs nothing of groups: give a column-major B" : " (pack=b)");
  if (is_empty(normalised)) return "D is empty, which takes no kernel";
  if (!reads_ab(p)) return "the sm90 main loop needs an A and B to read: k and alpha are not zero";
  // What is aligned to less comes next, by its own rule.
  device::KernelParameters parameters = parameters_of(c, p);
  parameters.align_a = parameters.align_b = 16;
  if (const char* rule = device::sm90::broken_rule(parameters)) return rule;
  if (std::string why = why_unaligned(c, p); !why.empty()) return why;
  if (c.cluster_at_launch)
    if (std::string why = why_no_cluster_at_launch(c, normalised); !why.empty()) return why;
  if (normalised.sharding != Sharding::none) {
    const device::sm90::Geometry geometry = device::sm90::geometry(parameters_of(c, p));
    if (std::string why = why_unshardable(c, normalised, geometry, device); !why.empty()) return why;
  }
  if (c.cluster_k > 1) {
    // Their barriers serve one tile. The kernel, which has no grid, does not see the rule broken.
    if (c.grid > 0) return "clusters that split k have no grid of their own: each has one tile, or part";
    if (ceil_div(p.k, c.block_k) / c.splits < c.cluster_k)
      return "each block of a cluster that splits k has a k-block of each part";
  }
  const NormalProblem slab = slab_problem(normalised, slab_of(normalised, c));
  const TensorMaps maps = tensor_maps_of(slab, kernel_problem(slab, c), c);
  for (const TensorMapSpec* map : {&maps.a, &maps.b, maps.has_d() ? &maps.d : nullptr})
    if (std::string why = map ? why_unmappable(*map) : ""; !why.empty()) return why;
  return {};
}

TemplateFiles template_files(DataType) {
  return {.geometry = {"geometry", "geometry_sm90"},
          .ptx = {"special_registers", "warp", "barrier", "convert", "math", "global", "shared", "dependent_launch",
                  "elect", "mbarrier", "tma", "stmatrix", "wgmma", "cluster", "system"},
          .main_loop = {"layout_sm90", "group_ends_sm90", "block_scales_sm90", "multiply_sm90", "own_scales",
                        "subtile_vectors", "staged_matrices", "operands_ahead", "store_sm90", "wait_for_rank",
                        "shards_sm90", "work_queue_sm90", "producer_sm90", "cluster_sum", "mainloop_sm90"}};
}

std::string macros(const KernelProblem& p, const KernelConfig& c) {
  std::vector<int> widths;
  const bool has_widths = narrows(c, p), accumulates = p.accumulation != Accumulation::promoted;
  if (has_widths)
    for (int width = device::width_step; width < c.block_n; width += device::width_step) widths.push_back(width);
  widths.push_back(device::sm90::geometry(parameters_of(c, p)).columns_promoted);
  return wgmma_macros(p.a.type, p.b.type, widths, accumulates || !has_widths);
}

}  // namespace

const KernelFamily sm90_family{.main_loop = MainLoop::sm90,
                               .footprint = footprint,
                               .why_illegal = why_illegal,
                               .template_files = template_files,
                               .macros = macros,
                               .tensor_maps = tensor_maps_of,
                               .block_slots = block_slots_sm90,
                               .takes_packed = true,
                               .promotes = true,
                               .has_one_tile_kernels = true,
                               .adapts_to_groups = true,
                               .portable = false};

}  // namespace jitgemm
