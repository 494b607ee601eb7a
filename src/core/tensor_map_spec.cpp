#include "core/tensor_map_spec.hpp"

namespace jitgemm {
namespace {

constexpr std::int64_t stride_end = std::int64_t(1) << 40, most_elements = std::int64_t(1) << 32;
constexpr int longest_box = 256;  // elements, in every dimension

}  // namespace

std::string why_unmappable(const TensorMapSpec& spec) {
  const auto size = std::int64_t(size_of(spec.type));
  if (size == 0) return "TMA copies elements of a type";
  const RowPairs& pairs = spec.pairs;
  const bool in_pairs = pairs.groups > 0;
  for (const std::int64_t extent : {spec.inner, spec.outer, spec.batch, in_pairs ? pairs.groups : 1})
    if (extent < 1 || extent > most_elements) return "TMA copies matrices of 1 to 2^32 elements in each dimension";
  if (const int bytes = spec.box_inner * int(size); bytes != 128 && bytes != 64 && bytes != 32 && bytes != 16)
    return "a row of a TMA box has 16, 32, 64 or 128 bytes";
  if (spec.box_outer < 1 || spec.box_outer > longest_box) return "a TMA box has at most 256 rows";
  if (in_pairs && (pairs.box_groups < 1 || pairs.box_groups > longest_box)) return "a TMA box has at most 256 groups";
  const auto reaches = [&](std::int64_t stride) { return stride > 0 && stride < stride_end / size; };
  const auto is_aligned = [&](std::int64_t stride) { return stride * size % 16 == 0; };
  const bool rows = spec.outer > 1, matrices = spec.batch > 1, groups = pairs.groups > 1;
  if ((rows && !reaches(spec.stride)) || (matrices && !reaches(spec.batch_stride)) ||
      (in_pairs && !reaches(pairs.stride)) || (groups && !reaches(pairs.group_stride)))
    return "rows and matrices that TMA copies are less than 2^40 bytes apart";
  if ((rows && !is_aligned(spec.stride)) || (matrices && !is_aligned(spec.batch_stride)) ||
      (in_pairs && !is_aligned(pairs.stride)) || (groups && !is_aligned(pairs.group_stride)))
    return "rows and matrices that TMA copies are a multiple of 16 bytes apart";
  return {};
}

bool strides_are_mappable(const OperandMatrix& matrix) {
  const std::int64_t end = stride_end / std::int64_t(size_of(matrix.type));
  return (matrix.vectors <= 1 || matrix.ld < end) && (matrix.batch <= 1 || matrix.stride < end);
}

}  // namespace jitgemm
