#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/occupied.hpp"
#include "jitgemm/types.hpp"

namespace jitgemm::python {

inline constexpr int max_rank = 16;

/// An array's elements as they lie in memory. Strides are in elements and may be zero or negative.
struct View {
  void* data = nullptr;
  DataType type = f16;
  int rank = 0;
  std::array<std::int64_t, max_rank> shape = {}, strides = {};

  std::int64_t elements() const;
  bool operator==(const View&) const = default;
};

/// The shape of an array.
struct Shape {
  int rank = 0;
  std::array<std::int64_t, max_rank> extents = {};

  void push_back(std::int64_t extent) { extents[std::size_t(rank++)] = extent; }
};
std::string to_string(const Shape& shape);
Shape shape_of(const View& view);
/// One whose elements lie one after the other, without memory.
View contiguous_view(const Shape& shape, DataType type);

/// Of one type, shape and strides; strides of dimensions with one index say nothing.
bool alike(const View& left, const View& right);
std::string form_text(const View& view);                     ///< what alike() compares, in words
std::string shape_text(const char* name, const View& view);  ///< "a is (2, 3)"

/// Arrays that do not go together; what() names them and says what to do.
struct ShapeError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// The last two dimensions of an array.
struct MatrixView {
  std::int64_t rows = 1, columns = 1;
  std::int64_t row_stride = 0, column_stride = 0;

  MatrixView transposed() const { return {columns, rows, column_stride, row_stride}; }
};
bool is_row_major(const MatrixView& matrix);
bool is_column_major(const MatrixView& matrix);

/// The memory of an array.
Occupied occupied(const View& view);
/// Whether two arrays with memory share some of it. Those are told apart that lie beside each other in each step of
/// some dimension that they have in common, as slices of one array.
bool overlap(const View& left, const View& right);

/// Of a dimension before the last `matrix_rank`, counted from the innermost: 1 and stride 0 where the array has none.
std::pair<std::int64_t, std::int64_t> batch_dimension(const View& view, int from_innermost, int matrix_rank = 2);

}  // namespace jitgemm::python
