#include "kernels/launch_shape.hpp"

#include <algorithm>

#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "kernels/family.hpp"
#include "kernels/kernel_problem.hpp"
#include "kernels/packing.hpp"
#include "kernels/parameters.hpp"

namespace jitgemm {

device::Partition partition_of(Schedule schedule) {
  switch (schedule) {
    case Schedule::data_parallel:
    case Schedule::persistent:
      return device::Partition::whole_tiles;
    case Schedule::split_k:
      return device::Partition::split_k;
    default:
      return device::Partition::stream_k;
  }
}

LaunchShape launch_shape(const Problem& asked, const KernelConfig& c) {
  const Problem p = kernel_problem(asked, c);
  LaunchShape shape;
  // Nothing to write has no tiles: with one extent 0, nothing bounds the others.
  const bool empty = is_empty(p);
  const int tile_m = c.block_m * c.cluster_m, tile_n = c.block_n * c.cluster_n;
  const int tiles_m = empty ? 0 : int((p.m + tile_m - 1) / tile_m),
            tiles_n = empty ? 0 : int((p.n + tile_n - 1) / tile_n);
  const int batch = int(p.batch), tiles = tiles_m * tiles_n * batch;
  // With nothing to multiply, one k-step of zeros.
  const int k_steps = reads_ab(p) ? int((p.k + c.block_k - 1) / c.block_k) : 1;
  const int cluster = cluster_size_of(c), grid = c.grid / cluster;

  int programs = tiles, stream_k_tiles = 0, splits = 1;
  switch (c.schedule) {
    case Schedule::data_parallel:
      break;
    case Schedule::persistent:
      if (grid > 0) programs = std::min(grid, tiles);
      break;
    case Schedule::split_k:
      splits = std::min(c.splits, k_steps);
      programs = grid > 0 ? std::min(grid, tiles * splits) : tiles * splits;
      break;
    case Schedule::stream_k:
    case Schedule::stream_k_one_tile:
    case Schedule::stream_k_two_tile:
      if (grid == 0 || tiles == 0) break;
      programs = grid;
      stream_k_tiles = c.schedule == Schedule::stream_k            ? tiles
                       : c.schedule == Schedule::stream_k_one_tile ? device::one_tile_stream_k_tiles(tiles, grid)
                                                                   : device::two_tile_stream_k_tiles(tiles, grid);
      break;
  }
  shape.decomposition = {tiles_m, tiles_n, batch, k_steps, programs, stream_k_tiles, splits, c.group_m};

  const device::Decomposition& d = shape.decomposition;
  const device::Partition partition = partition_of(c.schedule);
  const int blocks_a_tile = c.cluster_m * c.cluster_n;
  shape.cluster = cluster;
  shape.grid = tiles == 0 ? 0 : programs * cluster;
  const Footprint footprint = family_of(c).footprint(parameters_of(c, p));
  shape.threads = footprint.threads;
  shape.smem_bytes = std::size_t(footprint.smem_bytes);
  shape.partial_bytes = std::size_t(device::slot_count(partition, d)) * std::size_t(tile_m) * std::size_t(tile_n) *
                        size_of(accumulator_of(p));
  shape.counters = device::cut_tile_count(partition, d) * blocks_a_tile * footprint.arriving_groups;
  shape.packed_bytes = packing_of(asked, c).bytes;
  return shape;
}

}  // namespace jitgemm
