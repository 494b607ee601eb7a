#include "kernels/launch_shape.hpp"

#include "core/data_sheet.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "kernels/dealing.hpp"
#include "kernels/early_start.hpp"
#include "kernels/family.hpp"
#include "kernels/kernel_problem.hpp"
#include "kernels/packing.hpp"
#include "kernels/parameters.hpp"

namespace jitgemm {

// Of a data sheet's rate.
constexpr double sustained_memory = 0.9;

device::Partition partition_of(const KernelConfig& config) {
  switch (config.schedule) {
    case Schedule::data_parallel:
      if (family_of(config).has_one_tile_kernels) return device::Partition::one_tile;
      [[fallthrough]];
    case Schedule::persistent:
      return device::Partition::whole_tiles;
    case Schedule::split_k:
      return device::Partition::split_k;
    default:
      return device::Partition::stream_k;
  }
}

KernelConfig compiled_part(const KernelConfig& config) {
  KernelConfig compiled = config;
  for (const Schedule schedule : {Schedule::data_parallel, Schedule::stream_k}) {
    KernelConfig same = config;
    same.schedule = schedule;
    if (partition_of(same) == partition_of(config)) compiled.schedule = schedule;
  }
  if (config.cluster_at_launch) compiled.cluster_m = compiled.cluster_n = 1;
  compiled.splits = 1;
  compiled.grid = 0;
  compiled.pack_a = compiled.pack_b = false;
  return compiled;
}

LaunchShape launch_shape(const NormalProblem& normalised, const KernelConfig& c) {
  const KernelProblem p = kernel_problem(normalised, c);
  LaunchShape shape;
  const int cluster = cluster_size_of(c);
  const TileCounts tiles = tile_counts(p, c);
  const Dealing dealing = deal_out(c, tiles, c.grid / cluster);
  shape.decomposition = {int(tiles.m),        int(tiles.n),      p.grouping == Grouping::offsets ? 1 : int(p.batch),
                         int(tiles.k_blocks), int(dealing.ctas), int(dealing.stream_k_tiles),
                         int(dealing.splits), c.group_m};

  const device::Decomposition& d = shape.decomposition;
  const device::Partition partition = partition_of(c);
  shape.cluster = cluster;
  shape.grid = int(dealing.ctas) * cluster;
  const Footprint footprint = family_of(c).footprint(parameters_of(c, p));
  shape.cooperative = normalised.sharding == Sharding::scattered_d;
  shape.threads = footprint.threads;
  shape.smem_bytes = std::size_t(footprint.smem_bytes);
  shape.partial_bytes = std::size_t(device::slot_count(partition, d)) * std::size_t(c.block_m * c.cluster_m) *
                        std::size_t(c.block_n * c.cluster_n) * size_of(accumulator_of(p));
  shape.counters = fetches(c, p) ? 1 : device::split_tile_count(partition, d) * cluster * footprint.arriving_groups;
  shape.packed_bytes = packing_of(normalised, c).bytes;
  return shape;
}

LaunchShape launch_shape_on(const DeviceInfo& device, const NormalProblem& normalised, const KernelConfig& c) {
  LaunchShape shape = launch_shape(normalised, c);
  const auto block_slots = family_of(c).block_slots;
  if (!block_slots || !has_early_start(device, normalised)) return shape;
  const KernelProblem p = kernel_problem(normalised, c);
  const int cluster = cluster_size_of(c);
  const Dealing dealing = deal_out(c, tile_counts(p, c), c.grid / cluster);
  const double memory_us = minimum_bytes(normalised) / (sustained_memory * data_sheet_of(device).memory_bytes_us);
  const EarlyStart start = early_start_of(
      {.blocks = shape.grid, .slots = block_slots(c, p, device), .parts = dealing.parts * cluster}, memory_us);
  shape.wants_empty_gpu = start.wants_empty_gpu;
  shape.holds_next_back = start.holds_next_back;
  return shape;
}

}  // namespace jitgemm
