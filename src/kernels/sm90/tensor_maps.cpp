#include "kernels/sm90/tensor_maps.hpp"

#include "core/groups.hpp"
#include "core/operand_matrix.hpp"
#include "core/pairing.hpp"
#include "geometry_sm90.cuh"
#include "kernels/parameters.hpp"

namespace jitgemm {
namespace {

constexpr int line_bytes = 128;  // of a row of a box: geometry_sm90.cuh

TensorMapSpec map_of(const OperandMatrix& matrix, int box_inner, int box_outer) {
  return {.type = matrix.type,
          .inner = matrix.extent,
          .outer = matrix.vectors,
          .batch = matrix.stride == 0 ? 1 : matrix.batch,
          .stride = matrix.ld,
          .batch_stride = matrix.stride,
          .box_inner = box_inner,
          .box_outer = box_outer};
}

/// Of B, where each group's lies wherever its pointer says.
void find_by_address(TensorMapSpec& map) {
  map.of_all_addresses = true;
  map.batch = 1;
  map.batch_stride = 0;
}

/// Makes the map of a K-major operand, whose rows are columns of the product, one whose rows are pairs in turn. Of
/// whole groups a box has as many as the tile. Else no map of groups ends where both of the pair's rows do: rows are
/// one dimension then, and a box has one group of them.
void pair_rows(const NormalProblem& p, const OperandMatrix& matrix, TensorMapSpec& map) {
  const bool halves = pairing_of(p) == Pairing::halves;
  const std::int64_t width = columns_of_d(p), row = halves ? matrix.ld : 2 * matrix.ld;
  const bool ragged = has_ragged_pairs(p);
  map.outer = ragged ? width : pair_columns;
  map.stride = row;
  map.pairs = {.stride = halves ? width * matrix.ld : matrix.ld,
               .groups = ragged ? 1 : width / pair_columns,
               .group_stride = pair_columns * row,
               .box_groups = ragged ? 1 : int(map.box_outer / (2 * pair_columns))};
  map.box_outer = int(pair_columns);
}

}  // namespace

TensorMaps tensor_maps_of(const NormalProblem& normalised, const KernelProblem& p, const KernelConfig& c) {
  const bool a_k_major = p.a.layout == Layout::row_major, b_k_major = p.b.layout == Layout::column_major;
  const device::sm90::Geometry geometry = device::sm90::geometry(parameters_of(c, p));
  const int box = line_bytes / int(size_of(p.a.type));
  TensorMaps maps;
  maps.a = map_of(matrix_a(p), box, geometry.a_box);
  maps.b = map_of(matrix_b(p), box, geometry.b_box);
  if (has_pairs(normalised)) {
    TensorMapSpec& map = c.swap_ab ? maps.a : maps.b;
    if (c.swap_ab ? a_k_major : b_k_major)
      pair_rows(normalised, c.swap_ab ? matrix_a(p) : matrix_b(p), map);
    else
      map.inner = interleaved_columns(normalised);  // as they were packed
  }
  if (has_pointers_to_b(normalised)) find_by_address(c.swap_ab ? maps.a : maps.b);
  if (geometry.tma_store)
    maps.d = map_of(matrix_d(normalised), geometry.d_box_bytes / int(size_of(p.d.type)), geometry.d_box_rows);
  return maps;
}

}  // namespace jitgemm
