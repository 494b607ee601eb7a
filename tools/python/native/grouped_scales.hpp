#pragma once

#include <cstdint>
#include <optional>

#include "array.hpp"
#include "jitgemm/types.hpp"

namespace jitgemm::python {

/// One value, or a contiguous vector of each group's. nullptr: none. `or_blocks`: whether blocks' are named beside
/// these where others are refused.
const float* scales_of(const std::optional<Array>& scales, const Shape& vectors, const char* name, bool or_blocks,
                       Scaling& scaling);

/// An operand's matrices with k along the last dimension of theirs, as A's are, and `groups` sets of scales, 0 if there
/// is one for all.
struct ScaledOperand {
  const char *name, *way_out;
  bool is_b;
  std::int64_t groups, rows, k;

  int rank() const { return groups > 0 ? 3 : 2; }
  Shape shape(Scaling scaling) const;
  /// How kernels read them: elements from one to the next along each dimension of shape().
  Shape strides(Scaling scaling) const;
};

/// Those for each 128 of k, by their shape. ValueError for others, and where kernels would read other strides.
const float* block_scales_of(const View& view, const ScaledOperand& operand, Scaling& scaling);

}  // namespace jitgemm::python
