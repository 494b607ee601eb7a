#include "product.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/pairing.hpp"
#include "operand_views.hpp"

namespace jitgemm::python {
namespace {

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

}  // namespace

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
  if (product.loops > 0) {
    if (arrays.epilogue && arrays.epilogue->reads_batch)
      throw ShapeError(
          "the epilogue reads batch, and no one stride goes through the leading dimensions of all arrays; pass "
          "contiguous ones that do not broadcast");
    ProductArrays read = arrays;
    if (product.copy_a) read.a = nullptr;
    if (product.copy_b) read.b = nullptr;
    if (product.copy_c) read.c = nullptr;
    if (product.copy_bias) read.bias = nullptr;
    check_apart(read, d);
  }
  return product;
}

}  // namespace jitgemm::python
