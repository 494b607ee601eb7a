#include "view.hpp"

#include <algorithm>
#include <numeric>

namespace jitgemm::python {

View contiguous_view(const Shape& shape, DataType type) {
  View view{.type = type, .rank = shape.rank, .shape = shape.extents};
  std::int64_t stride = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    view.strides[std::size_t(i)] = stride;
    stride *= std::max<std::int64_t>(1, shape.extents[std::size_t(i)]);
  }
  return view;
}

bool alike(const View& left, const View& right) {
  if (left.type != right.type || left.rank != right.rank) return false;
  if (left.elements() == 0) return left.shape == right.shape;
  for (std::size_t i = 0; i < std::size_t(left.rank); ++i)
    if (left.shape[i] != right.shape[i] || (left.shape[i] > 1 && left.strides[i] != right.strides[i])) return false;
  return true;
}

std::string form_text(const View& view) {
  std::string text = std::string(to_string(view.type)) + " " + to_string(shape_of(view)) + " with strides (";
  for (int i = 0; i < view.rank; ++i) text += (i > 0 ? ", " : "") + std::to_string(view.strides[std::size_t(i)]);
  return text + ")";
}

std::int64_t View::elements() const {
  std::int64_t product = 1;
  for (int i = 0; i < rank; ++i) product *= shape[std::size_t(i)];
  return product;
}

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (int i = 0; i < shape.rank; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape.extents[std::size_t(i)]);
  }
  return text + (shape.rank == 1 ? ",)" : ")");
}

Shape shape_of(const View& view) { return {view.rank, view.shape}; }

std::string shape_text(const char* name, const View& view) { return name + (" is " + to_string(shape_of(view))); }

bool is_row_major(const MatrixView& matrix) {
  return (matrix.column_stride == 1 || matrix.columns <= 1) &&
         (matrix.row_stride >= matrix.columns || matrix.rows <= 1);
}
bool is_column_major(const MatrixView& matrix) { return is_row_major(matrix.transposed()); }

Occupied occupied(const View& view) {
  if (view.elements() == 0) return {};
  std::int64_t first = 0, last = 0;
  for (std::size_t i = 0; i < std::size_t(view.rank); ++i)
    (view.strides[i] < 0 ? first : last) += (view.shape[i] - 1) * view.strides[i];
  const auto size = std::int64_t(size_of(view.type));
  const void* const begin = static_cast<const char*>(view.data) + first * size;
  const std::int64_t bytes = (last - first + 1) * size;
  if (first < 0) return {begin, bytes};
  std::int64_t row = 1, pitch = 0;  // elements; 0: there is one row
  for (std::size_t i = 0; i < std::size_t(view.rank); ++i) {
    if (view.shape[i] == 1) continue;
    if (view.strides[i] == 1)
      row += view.shape[i] - 1;  // of several such dimensions, as windows have them, to the last element
    else
      pitch = std::gcd(pitch, view.strides[i]);
  }
  return {begin, bytes, pitch * size, row * size};
}

namespace {

/// As rows that lie `pitch` bytes apart, each with all that lies closer.
Occupied occupied(const View& view, std::int64_t pitch) {
  const auto size = std::int64_t(size_of(view.type));
  std::int64_t row = size, bytes = size;
  for (std::size_t i = 0; i < std::size_t(view.rank); ++i) {
    const std::int64_t stride = view.strides[i] * size, span = (view.shape[i] - 1) * stride;
    bytes += span;
    if (stride % pitch != 0) row += span;
  }
  return {view.data, bytes, pitch, row};
}

}  // namespace

bool overlap(const View& left, const View& right) {
  if (!left.data || !right.data || !occupied(left).overlaps(occupied(right))) return false;
  const auto is_backward = [](const View& view) {
    return std::any_of(view.strides.begin(), view.strides.begin() + view.rank, [](std::int64_t it) { return it < 0; });
  };
  if (is_backward(left) || is_backward(right)) return true;
  for (std::size_t i = 0; i < std::size_t(left.rank); ++i) {
    const std::int64_t pitch = left.strides[i] * std::int64_t(size_of(left.type));
    if (left.shape[i] > 1 && pitch > 0 && !occupied(left, pitch).overlaps(occupied(right, pitch))) return false;
  }
  return true;
}

std::pair<std::int64_t, std::int64_t> batch_dimension(const View& view, int from_innermost, int matrix_rank) {
  const int i = view.rank - matrix_rank - 1 - from_innermost;
  if (i < 0) return {1, 0};
  const std::int64_t extent = view.shape[std::size_t(i)];
  return {extent, extent == 1 ? 0 : view.strides[std::size_t(i)]};
}

}  // namespace jitgemm::python
