#include "core/operand_matrix.hpp"

#include <algorithm>
#include <utility>

#include "core/groups.hpp"
#include "core/pairing.hpp"
#include "core/type_rules.hpp"

namespace jitgemm {

namespace {

/// Of `rows` x `columns`.
OperandMatrix in_memory(const Matrix& matrix, std::int64_t rows, std::int64_t columns, const Problem& p) {
  if (matrix.layout == Layout::column_major) std::swap(rows, columns);
  return {columns, rows, matrix.type, matrix.ld, p.batch, matrix.stride};
}

/// Of 128, the last one may be shorter.
std::int64_t blocks(std::int64_t extent) { return (extent + 127) / 128; }

std::int64_t scales_of(Scaling scaling, std::int64_t rows, std::int64_t k) {
  switch (scaling) {
    case Scaling::value:
      return 1;
    case Scaling::vector:
      return rows;
    case Scaling::block_1x128:
      return (blocks(k) - 1) * scale_ld(scaling, rows, k) + rows;
    case Scaling::block_128x128:
      return blocks(rows) * blocks(k);
  }
  return 1;
}

/// All scales of blocks of one matrix, with what fills their last 16 bytes.
std::int64_t set_of_scales(Scaling scaling, std::int64_t rows, std::int64_t k) {
  return scale_ld(scaling, rows, k) * (scaling == Scaling::block_1x128 ? blocks(k) : blocks(rows));
}

}  // namespace

OperandMatrix matrix_a(const Problem& p) { return in_memory(p.a, p.m, p.k, p); }
OperandMatrix matrix_b(const Problem& p) { return in_memory(p.b, p.k, p.n, p); }
OperandMatrix matrix_d(const Problem& p) { return in_memory(p.d, p.m, columns_of_d(p), p); }

OperandMatrix matrix_c(const Problem& p) {
  OperandMatrix c = in_memory(p.c, p.m, p.n, p);
  c.type = type_of_c(p);
  return c;
}

std::int64_t bias_elements(const Problem& p) {
  switch (p.epilogue.bias) {
    case Bias::none:
      return 0;
    case Bias::along_n:
      return p.n;
    case Bias::along_m:
      return p.m;
  }
  return 0;
}

std::int64_t scale_stride_a(const Problem& p) {
  return p.a.stride == 0 || p.grouping == Grouping::offsets ? 0 : set_of_scales(p.a.scaling, p.m, p.k);
}
std::int64_t scale_stride_b(const Problem& p) { return p.b.stride == 0 ? 0 : set_of_scales(p.b.scaling, p.n, p.k); }

std::int64_t scales_of_a(const Problem& p) {
  if (is_of_blocks(p.a.scaling))
    return std::max<std::int64_t>(p.batch - 1, 0) * scale_stride_a(p) + scales_of(p.a.scaling, p.m, p.k);
  return scales_of(p.a.scaling, has_groups_of_rows(p) ? p.m * matrices_of_rows(p) : p.m, p.k);
}
std::int64_t scales_of_b(const Problem& p) {
  if (is_of_blocks(p.b.scaling))
    return std::max<std::int64_t>(p.batch - 1, 0) * scale_stride_b(p) + scales_of(p.b.scaling, p.n, p.k);
  return scales_of(p.b.scaling, has_groups_of_rows(p) ? p.n * p.batch : p.n, p.k);
}

std::int64_t scales_of_d(const Problem& p) { return scales_of(p.d.scaling, p.m, p.n); }

std::int64_t scale_ld(Scaling scaling, std::int64_t rows, std::int64_t k) {
  return scaling == Scaling::block_1x128 ? (rows + 3) / 4 * 4 : blocks(k);
}

}  // namespace jitgemm
