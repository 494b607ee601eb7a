#pragma once

#include <string>

#include "jitgemm/export.hpp"
#include "jitgemm/types.hpp"

namespace jitgemm {

/// What is computed:  D = activation(alpha * A * B + beta * C + bias)
///
/// A is M x K, B is K x N, C and D are M x N and row-major, bias has N elements and is added to every row. Products are
/// accumulated in f32. For a column-major D compute its transpose: swap A and B, and M and N.
struct Problem {
  std::int64_t m = 0, n = 0, k = 0;  ///< each >= 0 and < 2^31; with k = 0 the product is zero
  DataType a = f16, b = f16;         ///< equal; f16 or bf16
  DataType d = f16;                  ///< of C, D and bias: f16, bf16 or f32
  Layout layout_a = Layout::row_major;
  Layout layout_b = Layout::row_major;
  /// Leading dimensions in elements: from one row to the next (row-major) or one column to the next; 0 means packed.
  std::int64_t lda = 0, ldb = 0, ldc = 0, ldd = 0;
  // Scalars are rounded to f32. NaN and infinity are allowed and propagate: a beta of NaN is not 0, so it reads C.
  double alpha = 1;  ///< alpha = 0 never reads A and B
  double beta = 0;   ///< beta = 0 never reads C
  bool bias = false;
  Activation activation = Activation::none;
  double slope = 0.01;  ///< of leaky_relu
  /// What plan(), warm() and source() may assume of the pointers, in bytes: a power of two, 16 at most. gemm() looks at
  /// the pointers it is given instead.
  int align_a = 16, align_b = 16, align_c = 16, align_d = 16;
};

/// The memory of one call. Device pointers on a CUDA device, host pointers on the emulator; owned by the caller and
/// alive until the stream has passed the call. D may be C exactly (same pointer and leading dimension); any other
/// overlap of D with an input is an error, judged by the addresses from first to last element: matrices whose rows
/// interleave count as overlapping.
struct Operands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;  ///< ignored when beta = 0
  void* d = nullptr;
  const void* bias = nullptr;  ///< ignored unless Problem::bias
  /// Scratch for split tiles, 256-byte aligned, at least Context::workspace_size() bytes, any contents, not shared by
  /// calls that may run at once. nullptr: the Context keeps one per stream.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};

/// One line, `m=.. n=.. k=.. a=.. b=.. d=.. ...`, fields at their default left out.
JITGEMM_EXPORT std::string to_string(const Problem& problem);

}  // namespace jitgemm
