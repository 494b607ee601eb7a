#include "grouped_scales.hpp"

#include <algorithm>

#include "core/operand_matrix.hpp"
#include "errors.hpp"
#include "util/integers.hpp"

namespace jitgemm::python {

const float* scales_of(const std::optional<Array>& scales, const Shape& vectors, const char* name, bool or_blocks,
                       Scaling& scaling) {
  if (!scales) return nullptr;
  const View& view = scales->view();
  if (view.elements() != 1) {
    const View contiguous = contiguous_view(vectors, DataType::f32);
    if (!alike(view, contiguous))
      refuse_value(shape_text(name, view) + ": pass one value" + (or_blocks ? ", a" : " or a") + " contiguous " +
                   to_string(vectors) +
                   (or_blocks ? " or, for both operands of 8-bit floats, one for each 128 of k" : ""));
    scaling = Scaling::vector;
  }
  return static_cast<const float*>(view.data);
}

Shape ScaledOperand::shape(Scaling scaling) const {
  const std::int64_t k_blocks = ceil_div(k, 128),
                     of_rows = scaling == Scaling::block_1x128 ? rows : ceil_div(rows, 128);
  Shape shape;
  if (groups > 0) shape.push_back(groups);
  shape.push_back(is_b ? k_blocks : of_rows);
  shape.push_back(is_b ? of_rows : k_blocks);
  return shape;
}

Shape ScaledOperand::strides(Scaling scaling) const {
  const bool by_row = scaling == Scaling::block_1x128;
  const std::int64_t ld = scale_ld(scaling, rows, k), along_row = by_row ? 1 : ld, along_k = by_row ? ld : 1;
  Shape strides;
  if (groups > 0) strides.push_back(ld * (by_row ? ceil_div(k, 128) : ceil_div(rows, 128)));
  strides.push_back(is_b ? along_k : along_row);
  strides.push_back(is_b ? along_row : along_k);
  return strides;
}

const float* block_scales_of(const View& view, const ScaledOperand& operand, Scaling& scaling) {
  const auto has = [&view](const Shape& shape, const auto& values) {
    return std::equal(shape.extents.begin(), shape.extents.begin() + shape.rank, values.begin());
  };
  const auto lies = [&](Scaling as) {
    const Shape strides = operand.strides(as);
    for (std::size_t i = 0; i < std::size_t(strides.rank); ++i)
      if (view.shape[i] > 1 && view.strides[i] != strides.extents[i]) return false;
    return true;
  };
  std::optional<Scaling> found;
  for (const Scaling as : {Scaling::block_1x128, Scaling::block_128x128})
    if ((operand.is_b || as == Scaling::block_1x128) && has(operand.shape(as), view.shape) &&
        (!found || (!lies(*found) && lies(as))))
      found = as;
  if (!found)
    refuse_value(shape_text(operand.name, view) + ": pass " + to_string(operand.shape(Scaling::block_1x128)) +
                 ", one for each 128 of k" +
                 (operand.is_b ? ", or " + to_string(operand.shape(Scaling::block_128x128)) : ""));
  if (!lies(*found) && view.elements() > 0)
    refuse_value(shape_text(operand.name, view) + ", where kernels read strides " + to_string(operand.strides(*found)) +
                 "; pass " + operand.way_out);
  scaling = *found;
  return static_cast<const float*>(view.data);
}

}  // namespace jitgemm::python
