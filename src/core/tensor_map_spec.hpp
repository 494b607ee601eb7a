#pragma once

#include <string>

#include "core/operand_matrix.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

/// Rows of two kinds in turn: `outer` rows of the first, then as many of the second, which lie `stride` elements on;
/// then the next group.
struct RowPairs {
  std::int64_t stride = 0;
  std::int64_t groups = 0, group_stride = 0;  ///< elements; of one group it does not matter
  int box_groups = 0;

  bool operator==(const RowPairs&) const = default;
};

/// One box of a matrix of a batch that TMA copies between global and shared memory: a 3-D tensor, inner dimension
/// contiguous; with rows in pairs, or wherever a pointer says, 5-D.
struct TensorMapSpec {
  const void* address = nullptr;  ///< 16-byte aligned
  DataType type = f16;
  std::int64_t inner = 0, outer = 0, batch = 1;  ///< elements; matrices
  std::int64_t stride = 0;        ///< elements from one outer index to the next; of one row it does not matter
  std::int64_t batch_stride = 0;  ///< the same from one matrix to the next; of one matrix it does not matter
  int box_inner = 0,
      box_outer = 0;    ///< elements; box_inner spans 128, 64, 32 or 16 bytes, and the swizzle as many (16: none)
  RowPairs pairs = {};  ///< groups 0: none
  /// In the place of groups of pairs and matrices of a batch, of which there is one each: templates/address_map.cuh.
  bool of_all_addresses = false;

  bool operator==(const TensorMapSpec&) const = default;
};

/// Empty, or what the driver documents of cuTensorMapEncodeTiled that the map breaks, its address left out. That a
/// stride is a multiple of the one before it is documented, too, but no driver asks for it.
std::string why_unmappable(const TensorMapSpec& spec);

/// Whether a map's strides reach from row to row and from matrix to matrix.
bool strides_are_mappable(const OperandMatrix& matrix);

}  // namespace jitgemm
