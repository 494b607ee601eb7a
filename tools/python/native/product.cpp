#include "product.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/pairing.hpp"

namespace jitgemm::python {
namespace {

/// The last two dimensions of an operand.
struct MatrixView {
  std::int64_t rows = 1, columns = 1;
  std::int64_t row_stride = 0, column_stride = 0;

  MatrixView transposed() const { return {columns, rows, column_stride, row_stride}; }
};

bool is_row_major(const MatrixView& matrix) {
  return (matrix.column_stride == 1 || matrix.columns <= 1) &&
         (matrix.row_stride >= matrix.columns || matrix.rows <= 1);
}
bool is_column_major(const MatrixView& matrix) { return is_row_major(matrix.transposed()); }

/// False where neither layout describes it.
bool set_layout(Matrix& matrix, const MatrixView& view) {
  const bool row_major = is_row_major(view);
  // Of a vector that is both: as a column, so that kernels read it along k.
  const bool column_major = is_column_major(view) && (!row_major || view.columns == 1);
  matrix.layout = column_major ? Layout::column_major : Layout::row_major;
  const std::int64_t lines = column_major ? view.columns : view.rows;
  matrix.ld = lines <= 1 ? 0 : column_major ? view.column_stride : view.row_stride;
  return row_major || column_major;
}

/// One dimension of the batch, with each operand's stride in elements.
struct BatchDimension {
  std::int64_t extent = 1;
  std::int64_t a = 0, b = 0, c = 0, d = 0;
  std::vector<std::int64_t> epilogue = {};  // of its operands
};

class BatchDimensions {
 public:
  int size() const { return size_; }
  BatchDimension& operator[](int i) { return dimensions_[std::size_t(i)]; }
  BatchDimension& innermost() { return dimensions_[std::size_t(size_ - 1)]; }
  void drop_innermost() { --size_; }

  /// From the outermost on. Two that all operands step through alike become one.
  void add(const BatchDimension& inner) {
    if (inner.extent == 1) return;
    if (size_ > 0) {
      BatchDimension& outer = innermost();
      const auto is_next = [&](std::int64_t of_outer, std::int64_t of_inner) {
        return of_outer == of_inner * inner.extent;
      };
      const auto follows = [&](std::int64_t BatchDimension::* stride) { return is_next(outer.*stride, inner.*stride); };
      if (follows(&BatchDimension::a) && follows(&BatchDimension::b) && follows(&BatchDimension::c) &&
          follows(&BatchDimension::d) && std::ranges::equal(outer.epilogue, inner.epilogue, is_next)) {
        const std::int64_t extent = outer.extent * inner.extent;
        outer = inner;
        outer.extent = extent;
        return;
      }
    }
    dimensions_[std::size_t(size_++)] = inner;
  }

 private:
  int size_ = 0;
  std::array<BatchDimension, max_rank> dimensions_ = {};
};

MatrixView matrix_of(const View& view, bool vector_is_row) {
  const auto at = [&](int from_end) { return std::size_t(view.rank - from_end); };
  if (view.rank == 1 && vector_is_row) return {1, view.shape[0], 0, view.strides[0]};
  if (view.rank == 1) return {view.shape[0], 1, view.strides[0], 0};
  return {view.shape[at(2)], view.shape[at(1)], view.strides[at(2)], view.strides[at(1)]};
}

int batch_rank(const View& view) { return std::max(0, view.rank - 2); }

/// Of a batch dimension counted from the innermost: 1 and stride 0 where the array has none.
std::pair<std::int64_t, std::int64_t> batch_dimension(const View& view, int from_innermost, int matrix_rank = 2) {
  const int i = view.rank - matrix_rank - 1 - from_innermost;
  if (i < 0) return {1, 0};
  const std::int64_t extent = view.shape[std::size_t(i)];
  return {extent, extent == 1 ? 0 : view.strides[std::size_t(i)]};
}

std::string shape_text(const char* name, const View& view) { return name + (" is " + to_string(shape_of(view))); }

/// The bias's direction, by its shape.
Bias direction_of(const View& bias, std::int64_t m, std::int64_t n, bool column, const View& d) {
  if (bias.rank == 1 && column && bias.shape[0] == m) return Bias::along_m;
  if (bias.rank == 1 && !column && bias.shape[0] == n) return Bias::along_n;
  if (bias.rank == 2 && bias.shape[0] == 1 && bias.shape[1] == n) return Bias::along_n;
  if (bias.rank == 2 && bias.shape[0] == m && bias.shape[1] == 1) return Bias::along_m;
  throw ShapeError(shape_text("bias", bias) + " and the result " + to_string(shape_of(d)) + ": pass one of shape (" +
                   std::to_string(column ? m : n) +
                   (column ? ",)" : ",), or (" + std::to_string(m) + ", 1) for one value a row"));
}

/// How an epilogue's operand lies, and how many of its array's dimensions, from the last on, are no batch.
struct OperandView {
  MatrixView matrix;
  int rank = 0;
};

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
  if (view.elements() > 0 && !is_row_major(lies.matrix))
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

/// Of each operand; of a scalar nothing.
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

/// Whether the operand of a taller product, of `rows` more rows for each matrix of the batch, lies as one of it.
bool folds(const EpilogueArray& array, const OperandView& lies, std::int64_t stride) {
  if (!array.view) return true;
  if (array.operand->shape == OperandShape::along_n) return stride == 0;
  const MatrixView& matrix = lies.matrix;
  return stride >= matrix.columns && (matrix.rows == 1 || stride == matrix.rows * matrix.row_stride) &&
         (array.operand->shape == OperandShape::matrix || stride == matrix.rows);
}

/// The memory that a view reaches, as [begin, end).
std::pair<std::intptr_t, std::intptr_t> reach(const View& view) {
  std::intptr_t begin = 0, end = 1;
  for (std::size_t i = 0; i < std::size_t(view.rank); ++i)
    (view.strides[i] < 0 ? begin : end) += (view.shape[i] - 1) * view.strides[i];
  const auto base = reinterpret_cast<std::intptr_t>(view.data), size = std::intptr_t(size_of(view.type));
  return {base + begin * size, base + end * size};
}

/// The library sees one GEMM's memory, and where there are more, one must not read what another has written.
void check_apart(const ProductArrays& arrays, const View& d) {
  const auto overlap = [](const View& left, const View& right) {
    if (left.elements() == 0 || right.elements() == 0 || !left.data || !right.data) return false;
    const auto [left_begin, left_end] = reach(left);
    const auto [right_begin, right_end] = reach(right);
    return left_begin < right_end && right_begin < left_end;
  };
  const auto refuse = [](const std::string& name, const std::string& other) {
    throw ShapeError(name + " and " + other + " overlap in memory; pass arrays that do not");
  };
  for (const EpilogueArray& array : arrays.epilogue->operands) {
    if (!array.view) continue;
    const std::string name = "operand " + array.operand->name;
    const bool output = array.operand->output;
    const bool is_d = array.view->data == d.data && alike(*array.view, d);
    if (overlap(*array.view, d) && (output || !is_d)) refuse(name, "out");
    if (!output) continue;
    if (overlap(*array.view, *arrays.a)) refuse(name, "a");
    if (overlap(*array.view, *arrays.b)) refuse(name, "b");
    for (const EpilogueArray& other : arrays.epilogue->operands)
      if (&other != &array && other.view && overlap(*array.view, *other.view)) refuse(name, other.operand->name);
  }
}

}  // namespace

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

Shape product_shape(const View& a, const View& b, bool pairs) {
  if (a.rank == 0 || b.rank == 0)
    throw ShapeError(std::string(a.rank == 0 ? "a" : "b") + " has no dimension; to multiply by a number use alpha");
  const MatrixView left = matrix_of(a, true), right = matrix_of(b, false);
  if (left.columns != right.rows)
    throw ShapeError(shape_text("a", a) + " and " + shape_text("b", b) + ": the last dimension of a, " +
                     std::to_string(left.columns) + ", is not " +
                     (b.rank == 1 ? "that of b, " : "the last but one of b, ") + std::to_string(right.rows) +
                     "; transpose one of them");
  if (pairs && (b.rank == 1 || right.columns % 2 != 0))
    throw ShapeError(shape_text("b", b) +
                     (b.rank == 1 ? ", a vector" : ", of an odd number of columns, " + std::to_string(right.columns)) +
                     ", and the epilogue takes pairs of its columns; pass a matrix with an even number of them");
  Shape shape;
  const int rank = std::max(batch_rank(a), batch_rank(b));
  for (int i = rank - 1; i >= 0; --i) {
    const std::int64_t of_a = batch_dimension(a, i).first, of_b = batch_dimension(b, i).first;
    if (of_a != of_b && of_a != 1 && of_b != 1)
      throw ShapeError(shape_text("a", a) + " and " + shape_text("b", b) +
                       ": their batches do not broadcast; all but the last two dimensions must be alike, or 1");
    shape.push_back(of_a == 1 ? of_b : of_a);
  }
  if (a.rank > 1) shape.push_back(left.rows);
  if (b.rank > 1) shape.push_back(pairs ? right.columns / 2 : right.columns);
  return shape;
}

Product describe(const ProductArrays& arrays, const View& d, const Problem& like) {
  const View &a = *arrays.a, &b = *arrays.b;
  Product product;
  Problem& problem = product.problem = like;

  MatrixView left = matrix_of(a, true), right = matrix_of(b, false);
  const std::int64_t m = left.rows, n = has_pairs(like) ? right.columns / 2 : right.columns;  // of D
  const int result_rank = (a.rank > 1) + (b.rank > 1);  // of the dimensions of D that are no batch
  const auto result_matrix = [&](const View& view) -> MatrixView {
    const auto stride = [&](int from_end) { return view.strides[std::size_t(view.rank - from_end)]; };
    if (result_rank == 2) return {m, n, stride(2), stride(1)};
    if (result_rank == 0) return {1, 1, 0, 0};
    return a.rank > 1 ? MatrixView{m, 1, stride(1), 0} : MatrixView{1, n, 0, stride(1)};
  };
  problem.m = m;
  problem.n = right.columns;
  problem.k = left.columns;
  MatrixView result = result_matrix(d), addend;
  std::vector<OperandView> own;
  if (arrays.epilogue) own = operand_views(*arrays.epilogue, d, result_rank, result);
  product.epilogue.resize(own.size());
  if (d.elements() == 0) {  // of strides that mean nothing
    problem.batch = 0;
    return product;
  }
  if (arrays.c) {
    if (to_string(shape_of(*arrays.c)) != to_string(shape_of(d)))
      throw ShapeError(shape_text("c", *arrays.c) + " and the result " + to_string(shape_of(d)) +
                       ": they must be alike; what is added to each row is a bias");
    addend = result_matrix(*arrays.c);
  }
  Bias bias = Bias::none;
  if (arrays.bias) {
    bias = direction_of(*arrays.bias, m, n, result_rank == 1 && a.rank > 1, d);
    const View& vector = *arrays.bias;
    const std::size_t along = bias == Bias::along_n ? std::size_t(vector.rank - 1) : 0;
    product.copy_bias = vector.shape[along] > 1 && vector.strides[along] != 1;
  }

  BatchDimensions batch;
  for (int i = d.rank - result_rank - 1; i >= 0; --i) {
    BatchDimension dimension{
        batch_dimension(d, i, result_rank).first, batch_dimension(a, i).second, batch_dimension(b, i).second,
        arrays.c ? batch_dimension(*arrays.c, i, result_rank).second : 0, batch_dimension(d, i, result_rank).second};
    for (std::size_t j = 0; j < own.size(); ++j) {
      const View* const view = arrays.epilogue->operands[j].view;
      dimension.epilogue.push_back(view ? batch_dimension(*view, i, own[j].rank).second : 0);
    }
    batch.add(dimension);
  }

  // Kernels store D row by row: of a column-major one, its transpose is computed.
  product.swapped = !is_row_major(result);
  if (product.swapped) {
    if (arrays.epilogue)
      throw ShapeError("out is " + form_text(d) +
                       ", and with an epilogue its rows must lie as such; pass one that is contiguous in its last "
                       "dimension");
    if (!is_column_major(result))
      throw ShapeError("out has the shape " + to_string(shape_of(d)) +
                       " and its elements lie apart, or on one another, in both of its last two dimensions; pass one "
                       "that is contiguous in its last or last but one");
    left = std::exchange(right, left.transposed()).transposed();
    result = result.transposed();
    addend = addend.transposed();
    if (bias != Bias::none) bias = bias == Bias::along_n ? Bias::along_m : Bias::along_n;
    std::swap(problem.a, problem.b);
    for (int i = 0; i < batch.size(); ++i) std::swap(batch[i].a, batch[i].b);
  }

  // One B for many matrices A whose rows follow each other: one taller GEMM.
  const auto follows = [](std::int64_t stride, const MatrixView& matrix) {
    return matrix.rows == 1 || stride == matrix.rows * matrix.row_stride;
  };
  const bool tells_rows = arrays.epilogue && (arrays.epilogue->reads_row || arrays.epilogue->reads_batch);
  while (batch.size() > 0 && bias != Bias::along_m && !tells_rows && (left.column_stride == 1 || left.columns <= 1)) {
    const BatchDimension& inner = batch.innermost();
    bool operands_fold = true;
    for (std::size_t j = 0; j < own.size(); ++j)
      operands_fold = operands_fold && folds(arrays.epilogue->operands[j], own[j], inner.epilogue[j]);
    if (!operands_fold) break;
    if (inner.b != 0 || inner.a < left.columns || inner.d < result.columns || !follows(inner.a, left) ||
        !follows(inner.d, result) || (arrays.c && !follows(inner.c, addend)))
      break;
    const auto fold = [&](MatrixView& matrix, std::int64_t stride) {
      if (matrix.rows == 1) matrix.row_stride = stride;
      matrix.rows *= inner.extent;
    };
    if (left.rows * inner.extent >= std::int64_t(1) << 31) break;
    fold(left, inner.a);
    fold(result, inner.d);
    fold(addend, inner.c);
    for (std::size_t j = 0; j < own.size(); ++j)
      if (const auto [operand, view] = arrays.epilogue->operands[j]; view && operand->shape != OperandShape::along_n)
        fold(own[j].matrix, inner.epilogue[j]);
    batch.drop_innermost();
  }

  problem.m = left.rows;
  problem.n = right.columns;
  problem.k = left.columns;
  (product.swapped ? product.copy_b : product.copy_a) = !set_layout(problem.a, left);
  (product.swapped ? product.copy_a : product.copy_b) = !set_layout(problem.b, right);
  problem.d.layout = Layout::row_major;
  problem.d.ld = result.rows <= 1 ? 0 : result.row_stride;
  if (arrays.c) {
    product.copy_c = !is_row_major(addend);
    problem.c.ld = addend.rows <= 1 ? 0 : addend.row_stride;
  }
  problem.epilogue.bias = bias;
  for (std::size_t j = 0; j < own.size(); ++j)
    if (own[j].matrix.rows > 1) product.epilogue[j].ld = own[j].matrix.row_stride;

  const auto is_legal = [](const BatchDimension& it) {
    return it.a >= 0 && it.b >= 0 && it.c >= 0 && it.d >= 0 &&
           std::ranges::all_of(it.epilogue, [](std::int64_t stride) { return stride >= 0; });
  };
  if (batch.size() > 0 && is_legal(batch.innermost())) {
    const BatchDimension& inner = batch.innermost();
    problem.batch = inner.extent;
    problem.a.stride = inner.a;
    problem.b.stride = inner.b;
    problem.c.stride = inner.c;
    problem.d.stride = inner.d;
    for (std::size_t j = 0; j < own.size(); ++j) product.epilogue[j].stride = inner.epilogue[j];
    batch.drop_innermost();
  }
  const auto size_a = std::int64_t(size_of(problem.a.type)), size_b = std::int64_t(size_of(problem.b.type)),
             size_d = std::int64_t(size_of(problem.d.type)),
             size_c = arrays.c ? std::int64_t(size_of(arrays.c->type)) : 0;
  product.loops = batch.size();
  for (int i = 0; i < batch.size(); ++i) {
    Product::Loop& loop = product.loop[std::size_t(i)];
    loop = {batch[i].extent, batch[i].a * size_a, batch[i].b * size_b, batch[i].c * size_c, batch[i].d * size_d, {}};
    for (std::size_t j = 0; j < own.size(); ++j)
      loop.epilogue.push_back(batch[i].epilogue[j] * std::int64_t(size_of(arrays.epilogue->operands[j].operand->type)));
  }
  if (arrays.epilogue && product.loops > 0) {
    if (arrays.epilogue->reads_batch)
      throw ShapeError(
          "the epilogue reads batch, and no one stride goes through the leading dimensions of all arrays; pass "
          "contiguous ones that do not broadcast");
    check_apart(arrays, d);
  }
  return product;
}

}  // namespace jitgemm::python
