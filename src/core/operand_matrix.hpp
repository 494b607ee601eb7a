#pragma once

#include "jitgemm/problem.hpp"

namespace jitgemm {

/// An operand as memory: `batch` matrices, each of `vectors` rows (columns) of `extent` adjacent elements.
struct OperandMatrix {
  std::int64_t extent, vectors;
  DataType type;
  std::int64_t ld;             // elements from one row (column) to the next
  std::int64_t batch, stride;  // elements from one matrix to the next, 0: all are the same one

  bool empty() const { return extent == 0 || vectors == 0 || batch == 0; }
  std::int64_t packed_ld() const { return extent > 1 ? extent : 1; }
  /// Elements from the first to one past the last: of one matrix, of the batch.
  std::int64_t span() const { return empty() ? 0 : (vectors - 1) * ld + extent; }
  std::int64_t batch_span() const { return empty() ? 0 : (batch - 1) * stride + span(); }
  std::int64_t batch_bytes() const { return batch_span() * std::int64_t(size_of(type)); }
};

OperandMatrix matrix_a(const Problem& problem);
OperandMatrix matrix_b(const Problem& problem);
OperandMatrix matrix_c(const Problem& problem);
OperandMatrix matrix_d(const Problem& problem);

/// Elements of the bias; 0 without one.
std::int64_t bias_elements(const Problem& problem);

// Scales, f32 each: as many as A or B has where it has any, to the last one.
std::int64_t scales_of_a(const Problem& problem);
std::int64_t scales_of_b(const Problem& problem);
/// From one matrix's scales of blocks, or a group's, to the next's; 0 of those that share them as they share A or B.
std::int64_t scale_stride_a(const Problem& problem);
std::int64_t scale_stride_b(const Problem& problem);
/// Of a D with scales of its own.
std::int64_t scales_of_d(const Problem& problem);
/// Of blocks of a matrix with so many rows (columns): from 128 of k (1x128) or 128 rows (128x128) to the next.
std::int64_t scale_ld(Scaling scaling, std::int64_t rows, std::int64_t k);

}  // namespace jitgemm
