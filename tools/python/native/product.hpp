#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "jitgemm/epilogue.hpp"
#include "jitgemm/problem.hpp"
#include "view.hpp"

namespace jitgemm::python {

/// An operand of an epilogue of the caller's own.
struct EpilogueArray {
  const EpilogueOperand* operand = nullptr;
  const View* view = nullptr;  // null of a scalar
};
struct EpilogueArrays {
  std::vector<EpilogueArray> operands;  // in their order
  bool reads_row = false, reads_batch = false;
};

/// What matmul() takes besides scalars and types; null are those that are not there.
struct ProductArrays {
  const View* a = nullptr;
  const View* b = nullptr;
  const View* c = nullptr;
  const View* bias = nullptr;
  const EpilogueArrays* epilogue = nullptr;
};

/// The shape of A @ B by the rules of torch.matmul: vectors, matrices, batches that broadcast; with `pairs` of columns
/// of B that are one of the result, half as wide. Throws ShapeError.
Shape product_shape(const View& a, const View& b, bool pairs = false);

/// A product of arrays as GEMMs of one problem.
struct Product {
  Problem problem;
  /// D^T = B^T A^T is computed, since D is column-major.
  bool swapped = false;

  /// Dimensions of the batch that the problem's strides cannot express; one GEMM for each of their indices.
  struct Loop {
    std::int64_t extent = 0;
    std::int64_t a = 0, b = 0, c = 0, d = 0;  // strides in bytes, of the operands as the problem has them
    std::vector<std::int64_t> epilogue;       // of its operands
  };
  int loops = 0;
  std::array<Loop, max_rank> loop = {};

  /// How each operand of an epilogue of the caller's own lies, in elements.
  struct Place {
    std::int64_t ld = 0, stride = packed_stride;
  };
  std::vector<Place> epilogue;

  /// Of the arrays that no layout describes: they must be copied to contiguous ones first.
  bool copy_a = false, copy_b = false, copy_c = false, copy_bias = false;
};

/// Fills in sizes, layouts, strides and the bias of a problem whose other fields are those of `like`. `d` is the view
/// of an array of product_shape(). Throws ShapeError.
Product describe(const ProductArrays& arrays, const View& d, const Problem& like);

}  // namespace jitgemm::python
