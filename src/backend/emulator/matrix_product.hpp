#pragma once

#include <cstdint>

namespace jitgemm::emulator {

/// Two 16-bit elements a register, low half first, to f32: y has 2 * registers elements. registers: a multiple of 4.
void widen(bool bf16, const std::uint32_t* x, float* y, int registers);

/// d (rows x n) += a (rows x 16) * b (16 x n), each sum in the order of k, products exact. All are packed rows, 16-byte
/// aligned; n is a multiple of 8.
void multiply_add(const float* a, const float* b, float* d, int rows, int n);

}  // namespace jitgemm::emulator
