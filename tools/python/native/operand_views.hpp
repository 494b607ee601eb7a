#pragma once

#include <vector>

#include "product.hpp"

namespace jitgemm::python {

/// How an epilogue's operand lies, and how many of its array's dimensions, from the last on, are no batch.
struct OperandView {
  MatrixView matrix;
  int rank = 0;
};

/// Of each operand of an epilogue; of a scalar nothing. `result_rank` dimensions of `d` are no batch, and `result` is
/// how they lie. Throws ShapeError.
std::vector<OperandView> operand_views(const EpilogueArrays& arrays, const View& d, int result_rank,
                                       const MatrixView& result);

/// Whether the operand of a taller product, of `rows` more rows for each matrix of the batch, lies as one of it.
bool folds(const EpilogueArray& array, const OperandView& lies, std::int64_t stride);

/// The library sees one GEMM's memory, and where there are more, one must not read what another has written:
/// throws ShapeError where one could. Arrays that are null are read before all of them.
void check_apart(const ProductArrays& arrays, const View& d);

}  // namespace jitgemm::python
