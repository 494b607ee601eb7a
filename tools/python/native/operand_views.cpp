#include "operand_views.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

namespace jitgemm::python {
namespace {

[[noreturn]] void refuse_operand(const EpilogueArray& array, const std::string& why) {
  throw ShapeError("operand " + array.operand->name + " is " + to_string(shape_of(*array.view)) + why);
}

/// Whether the dimensions before the last `rank` are those of the result, or broadcast to them.
bool fits_batch(const View& view, int rank, const View& d, int result_rank, bool exactly) {
  const int of_view = view.rank - rank, of_d = d.rank - result_rank;
  if (of_view > of_d || (exactly && of_view != of_d)) return false;
  for (int i = 0; i < of_view; ++i) {
    const std::int64_t extent = batch_dimension(view, i, rank).first;
    if (extent != batch_dimension(d, i, result_rank).first && (exactly || extent != 1)) return false;
  }
  return true;
}

/// Whether no two indices are of one element, as far as the strides tell.
bool is_injective(const View& view) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;  // stride, extent
  for (std::size_t i = 0; i < std::size_t(view.rank); ++i)
    if (view.shape[i] > 1) dimensions.emplace_back(std::abs(view.strides[i]), view.shape[i]);
  std::ranges::sort(dimensions);
  std::int64_t span = 0;
  for (const auto& [stride, extent] : dimensions) {
    if (stride <= span) return false;
    span += stride * (extent - 1);
  }
  return true;
}

OperandView matrix_operand(const EpilogueArray& array, const View& d, int result_rank, const MatrixView& result) {
  const View& view = *array.view;
  const bool output = array.operand->output;
  bool fits = view.rank >= result_rank && fits_batch(view, result_rank, d, result_rank, output);
  for (int i = 1; fits && i <= result_rank; ++i)
    fits = view.shape[std::size_t(view.rank - i)] == d.shape[std::size_t(d.rank - i)];
  if (!fits)
    refuse_operand(array, ", a matrix, and the result " + to_string(shape_of(d)) +
                              (output ? ": an output has the result's shape"
                                      : ": pass one of that shape, whose leading dimensions may broadcast"));
  const auto stride = [&](int from_end) { return view.strides[std::size_t(view.rank - from_end)]; };
  OperandView lies{result, result_rank};
  if (result_rank == 2) lies.matrix.row_stride = stride(2), lies.matrix.column_stride = stride(1);
  if (result_rank == 1) (result.columns == 1 ? lies.matrix.row_stride : lies.matrix.column_stride) = stride(1);
  const bool apart = lies.matrix.column_stride != 1 && lies.matrix.columns > 1;
  if (view.elements() > 0 && !apart && !is_row_major(lies.matrix))
    refuse_operand(array, ", and its rows do not lie one after the other, but backwards or on one another, strides " +
                              to_string(Shape{view.rank, view.strides}) + "; pass a contiguous one");
  if (view.elements() > 0 && apart)
    refuse_operand(array,
                   ", and its elements do not lie one after the other along the last dimension; pass a "
                   "contiguous one");
  if (output && view.elements() > 0 && !is_injective(view))
    refuse_operand(array, ", and some of its elements are one in memory; pass an array that has each of its own");
  return lies;
}

OperandView vector_operand(const EpilogueArray& array, const View& d, int result_rank, std::int64_t m, std::int64_t n) {
  const View& view = *array.view;
  const bool by_row = array.operand->shape == OperandShape::along_m;
  const std::int64_t length = by_row ? m : n;
  const auto extent = [&](int from_end) { return view.shape[std::size_t(view.rank - from_end)]; };
  const bool is_vector = view.rank == 1 && extent(1) == length;
  const bool is_batch = view.rank >= 2 && extent(by_row ? 2 : 1) == length && extent(by_row ? 1 : 2) == 1 &&
                        fits_batch(view, 2, d, result_rank, false);
  if (!is_vector && !is_batch)
    refuse_operand(
        array, (by_row ? ", a value a row, and the result " : ", a value a column, and the result ") +
                   to_string(shape_of(d)) + ": pass one of shape (" + std::to_string(length) + ",), or " +
                   (by_row ? "(..., " + std::to_string(length) + ", 1)" : "(..., 1, " + std::to_string(length) + ")") +
                   " whose leading dimensions are those of the batch or 1");
  const std::int64_t stride = view.strides[std::size_t(view.rank - (is_batch && by_row ? 2 : 1))];
  if (length > 1 && stride != 1 && view.elements() > 0)
    refuse_operand(array, ", and its elements do not lie one after the other; pass a contiguous one");
  return {by_row ? MatrixView{length, 1, 1, 0} : MatrixView{1, length, 0, 1}, is_vector ? 1 : 2};
}

}  // namespace

std::vector<OperandView> operand_views(const EpilogueArrays& arrays, const View& d, int result_rank,
                                       const MatrixView& result) {
  std::vector<OperandView> views;
  for (const EpilogueArray& array : arrays.operands) {
    if (!array.view)
      views.emplace_back();
    else if (array.operand->shape == OperandShape::matrix)
      views.push_back(matrix_operand(array, d, result_rank, result));
    else
      views.push_back(vector_operand(array, d, result_rank, result.rows, result.columns));
  }
  return views;
}

bool folds(const EpilogueArray& array, const OperandView& lies, std::int64_t stride) {
  if (!array.view) return true;
  if (array.operand->shape == OperandShape::along_n) return stride == 0;
  const MatrixView& matrix = lies.matrix;
  return stride >= matrix.columns && (matrix.rows == 1 || stride == matrix.rows * matrix.row_stride) &&
         (array.operand->shape == OperandShape::matrix || stride == matrix.rows);
}

void check_apart(const ProductArrays& arrays, const View& d) {
  const auto refuse = [](const std::string& name, const std::string& other) {
    throw ShapeError(name + " and " + other + " overlap in memory; pass arrays that do not");
  };
  const auto is_d = [&d](const View& view) { return view.data == d.data && alike(view, d); };
  const auto check = [&](const std::string& name, const View& written, const char* other, const View* read) {
    if (read && overlap(written, *read)) refuse(name, other);
  };
  check("out", d, "a", arrays.a);
  check("out", d, "b", arrays.b);
  check("out", d, "bias", arrays.bias);
  if (arrays.c && !is_d(*arrays.c)) check("out", d, "c", arrays.c);
  if (!arrays.epilogue) return;
  for (const EpilogueArray& array : arrays.epilogue->operands) {
    if (!array.view) continue;
    const std::string name = "operand " + array.operand->name;
    const bool output = array.operand->output;
    if (output || !is_d(*array.view)) check(name, *array.view, "out", &d);
    if (!output) continue;
    check(name, *array.view, "a", arrays.a);
    check(name, *array.view, "b", arrays.b);
    for (const EpilogueArray& other : arrays.epilogue->operands)
      if (&other != &array && other.view && overlap(*array.view, *other.view)) refuse(name, other.operand->name);
  }
}

}  // namespace jitgemm::python
