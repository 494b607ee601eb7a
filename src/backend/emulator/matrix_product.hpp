#pragma once

#include "backend/emulator/device.hpp"

namespace jitgemm::emulator {

using device::emulator::TensorType;

const char* to_string(TensorType type);

/// Whether tensor cores multiply a's by b's.
constexpr bool is_pair(TensorType a, TensorType b) {
  const auto is_fp8 = [](TensorType type) { return type == TensorType::e4m3 || type == TensorType::e5m2; };
  return a == b ? a <= TensorType::f64 : is_fp8(a) && is_fp8(b);
}

/// Elements of one row of a, or column of b, in one operation: 32 bytes.
constexpr int depth(TensorType type) {
  switch (type) {
    case TensorType::f16:
    case TensorType::bf16:
      return 16;
    case TensorType::tf32:
      return 8;
    case TensorType::f64:
      return 4;
    default:
      return 32;
  }
}

/// The largest depth.
constexpr int max_depth = 32;

/// Elements, a multiple of 16 bytes, to the type of their sums, which holds them exactly: f32, of s8 s32, of f64 f64.
void widen(TensorType type, const void* x, void* y, int bytes);

/// d (rows x n) += a (rows x depth) * b (depth x n), each sum in the order of k, one rounding a product and one a sum;
/// s32 wraps. The operands are widened, `type` is one of theirs. All are packed rows; `rows`
/// is a multiple of 4, n of 8.
void multiply_add(TensorType type, const void* a, const void* b, void* d, int rows, int n);

}  // namespace jitgemm::emulator
