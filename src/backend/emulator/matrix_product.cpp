#include "backend/emulator/matrix_product.hpp"

#include <cstring>

// Vectors are spelt out so that the speed does not depend on the build type. Results do not depend on their width.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define JITGEMM_WIDEST __attribute__((target_clones("avx2", "default"), optimize("O2")))
#else
#define JITGEMM_WIDEST
#endif

namespace jitgemm::emulator {

namespace {

typedef float Floats __attribute__((vector_size(32), aligned(16)));
typedef std::uint32_t Words __attribute__((vector_size(32), aligned(16)));
typedef std::uint32_t FourWords __attribute__((vector_size(16), aligned(4)));

}  // namespace

JITGEMM_WIDEST void widen(bool bf16, const std::uint32_t* x, float* y, int registers) {
  for (int i = 0; i < registers; i += 4) {
    const FourWords in = *reinterpret_cast<const FourWords*>(x + i);
    const FourWords low = in & 0xffff, high = in >> 16;
    Words half = __builtin_shufflevector(low, high, 0, 4, 1, 5, 2, 6, 3, 7);
    Words bits;
    if (bf16) {
      bits = half << 16;
    } else {
      const Words magnitude = half & 0x7fff;
      const Words shifted = magnitude << 13;
      Floats rebiased;
      std::memcpy(&rebiased, &shifted, sizeof rebiased);
      rebiased *= 0x1p112f;  // subnormals too
      std::memcpy(&bits, &rebiased, sizeof bits);
      const Words special = (Words)(magnitude >= 0x7c00) & 0x7f800000;
      bits |= special | (half & 0x8000) << 16;
    }
    std::memcpy(y + 2 * i, &bits, sizeof bits);
  }
}

JITGEMM_WIDEST void multiply_add(const float* a, const float* b, float* d, int rows, int n) {
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < n; column += 8) {
      float* to = d + row * n + column;
      Floats sum = *reinterpret_cast<const Floats*>(to);
      for (int k = 0; k < 16; ++k) {
        const Floats factor = *reinterpret_cast<const Floats*>(b + k * n + column);
        const Floats product = a[row * 16 + k] * factor;
        sum = sum + product;
      }
      *reinterpret_cast<Floats*>(to) = sum;
    }
  }
}

}  // namespace jitgemm::emulator
