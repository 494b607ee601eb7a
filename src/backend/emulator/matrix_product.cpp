#include "backend/emulator/matrix_product.hpp"

#include <array>
#include <cstdint>
#include <cstring>

#include "core/element.hpp"

// Vectors are spelt out so that the speed does not depend on the build type. Results do not depend on their width.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define JITGEMM_WIDEST __attribute__((target_clones("avx2", "default"), optimize("O2")))
#else
#define JITGEMM_WIDEST
#endif

namespace jitgemm::emulator {

namespace {

typedef float Floats __attribute__((vector_size(32)));
typedef double Doubles __attribute__((vector_size(32)));
typedef std::uint32_t Words __attribute__((vector_size(32)));
typedef std::uint32_t FourWords __attribute__((vector_size(16)));

// What sums are made of.
struct F32 {
  using Scalar = float;
  using Vector = Floats;
};
struct S32 {
  using Scalar = std::uint32_t;  // wraps
  using Vector = Words;
};
struct F64 {
  using Scalar = double;
  using Vector = Doubles;
};

// Of memory of any type and alignment.
template <class T>
[[gnu::always_inline]] inline void load(T& x, const void* memory, int index) {
  std::memcpy(&x, static_cast<const char*>(memory) + index * sizeof x, sizeof x);
}
template <class T>
[[gnu::always_inline]] inline void store(const T& x, void* memory, int index) {
  std::memcpy(static_cast<char*>(memory) + index * sizeof x, &x, sizeof x);
}

template <class Sum, int DEPTH>
[[gnu::always_inline]] inline void multiply_add_rows(const void* a, const void* b, void* d, int rows, int n) {
  using Scalar = typename Sum::Scalar;
  using Vector = typename Sum::Vector;
  const int columns = n / int(sizeof(Vector) / sizeof(Scalar));
  constexpr int together = 4;  // rows, so that additions need not wait for each other
  for (int row = 0; row < rows; row += together) {
    for (int column = 0; column < columns; ++column) {
      Vector sums[together];
#pragma GCC unroll 4
      for (int r = 0; r < together; ++r) load(sums[r], d, (row + r) * columns + column);
      for (int k = 0; k < DEPTH; ++k) {
        Vector factors;
        load(factors, b, k * columns + column);
#pragma GCC unroll 4
        for (int r = 0; r < together; ++r) {
          Scalar factor;
          load(factor, a, (row + r) * DEPTH + k);
          const Vector products = factor * factors;
          sums[r] = sums[r] + products;
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < together; ++r) store(sums[r], d, (row + r) * columns + column);
    }
  }
}

JITGEMM_WIDEST void widen_halves(bool bf16, const void* x, void* y, int bytes) {
  for (int i = 0; i < bytes / 16; ++i) {
    FourWords in;
    load(in, x, i);
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
    store(bits, y, i);
  }
}

template <DataType TYPE>
const std::array<float, 256>& values_of_bytes() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values;
    for (int bits = 0; bits < 256; ++bits) {
      const auto byte = static_cast<unsigned char>(bits);
      values[bits] = float(load_element(&byte, 0, TYPE));
    }
    return values;
  }();
  return table;
}

void widen_bytes(const std::array<float, 256>& values, const void* x, void* y, int bytes) {
  for (int i = 0; i < bytes; ++i) store(values[static_cast<const unsigned char*>(x)[i]], y, i);
}

}  // namespace

const char* to_string(TensorType type) {
  static constexpr const char* names[] = {"f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "f64"};
  return type <= TensorType::f64 ? names[int(type)] : "no type";
}

void widen(TensorType type, const void* x, void* y, int bytes) {
  switch (type) {
    case TensorType::f16:
    case TensorType::bf16:
      return widen_halves(type == TensorType::bf16, x, y, bytes);
    case TensorType::tf32:  // 10 bits of fraction; the rest is not looked at
      for (int i = 0; i < bytes / 16; ++i) {
        FourWords bits;
        load(bits, x, i);
        bits &= 0xffffe000;
        store(bits, y, i);
      }
      return;
    case TensorType::e4m3:
      return widen_bytes(values_of_bytes<e4m3>(), x, y, bytes);
    case TensorType::e5m2:
      return widen_bytes(values_of_bytes<e5m2>(), x, y, bytes);
    case TensorType::s8:
      for (int i = 0; i < bytes; ++i) store(int(static_cast<const signed char*>(x)[i]), y, i);
      return;
    case TensorType::f64:
      std::memcpy(y, x, std::size_t(bytes));
      return;
  }
}

JITGEMM_WIDEST void multiply_add(TensorType type, const void* a, const void* b, void* d, int rows, int n) {
  switch (type) {
    case TensorType::f16:
    case TensorType::bf16:
      return multiply_add_rows<F32, depth(TensorType::f16)>(a, b, d, rows, n);
    case TensorType::tf32:
      return multiply_add_rows<F32, depth(TensorType::tf32)>(a, b, d, rows, n);
    case TensorType::e4m3:
    case TensorType::e5m2:
      return multiply_add_rows<F32, depth(TensorType::e4m3)>(a, b, d, rows, n);
    case TensorType::s8:
      return multiply_add_rows<S32, depth(TensorType::s8)>(a, b, d, rows, n);
    case TensorType::f64:
      return multiply_add_rows<F64, depth(TensorType::f64)>(a, b, d, rows, n);
  }
}

}  // namespace jitgemm::emulator
