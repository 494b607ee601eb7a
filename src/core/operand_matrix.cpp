#include "core/operand_matrix.hpp"

#include "core/type_rules.hpp"

namespace jitgemm {

OperandMatrix matrix_a(const Problem& p) {
  const bool rows = p.layout_a == Layout::row_major;
  return {rows ? p.k : p.m, rows ? p.m : p.k, p.a, p.lda, p.batch, p.stride_a};
}

OperandMatrix matrix_b(const Problem& p) {
  const bool rows = p.layout_b == Layout::row_major;
  return {rows ? p.n : p.k, rows ? p.k : p.n, p.b, p.ldb, p.batch, p.stride_b};
}

OperandMatrix matrix_c(const Problem& p) { return {p.n, p.m, type_of_c(p), p.ldc, p.batch, p.stride_c}; }

OperandMatrix matrix_d(const Problem& p) { return {p.n, p.m, p.d, p.ldd, p.batch, p.stride_d}; }

std::int64_t bias_elements(const Problem& p) {
  switch (p.bias) {
    case Bias::none:
      return 0;
    case Bias::along_n:
      return p.n;
    case Bias::along_m:
      return p.m;
  }
  return 0;
}

}  // namespace jitgemm
