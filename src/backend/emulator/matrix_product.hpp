#pragma once

#include <string>

#include "backend/emulator/device.hpp"
#include "core/data_types.hpp"

namespace jitgemm::emulator {

using device::emulator::TensorType;

std::string name_of(TensorType type);

/// Whether tensor cores multiply a's by b's.
inline bool is_pair(TensorType a, TensorType b) { return info_of(a).tensor_cores && info_of(a).partners.contains(b); }

inline bool is_integer(TensorType type) { return info_of(type).is_integer(); }

/// Elements of one row of a, or column of b, in one operation: 32 bytes.
inline int depth(TensorType type) { return 32 * 8 / info_of(type).bits; }

/// The largest depth.
constexpr int max_depth = 32;

/// Elements, a multiple of 16 bytes, to the type of their sums, the accumulator's, which holds them exactly.
void widen(TensorType type, const void* x, void* y, int bytes);

/// d (rows x n) += a (rows x depth) * b (depth x n), each sum in the order of k, one rounding a product and one a sum;
/// s32 wraps. The operands are widened, `type` is one of theirs. All are packed rows; `rows`
/// is a multiple of 4, n of 8.
void multiply_add(TensorType type, const void* a, const void* b, void* d, int rows, int n);

}  // namespace jitgemm::emulator
