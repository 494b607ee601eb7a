#include "backend/emulator/matrix_product.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

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

/// What each byte is widened to: a float or, of integers, an int.
using WidenedBytes = std::array<std::uint32_t, 256>;

WidenedBytes widened_bytes(DataType type) {
  WidenedBytes words;
  for (std::size_t bits = 0; bits < words.size(); ++bits) {
    const auto byte = static_cast<unsigned char>(bits);
    const double value = load_element(&byte, 0, type);
    words[bits] = is_integer(type) ? std::uint32_t(int(value)) : std::bit_cast<std::uint32_t>(float(value));
  }
  return words;
}

/// Of an 8-bit type.
const WidenedBytes& table_of(DataType type) {
  static const std::vector<WidenedBytes> tables = [] {
    std::vector<WidenedBytes> all(data_types().size());
    for (const DataTypeInfo& info : data_types())
      if (info.bits == 8) all[std::size_t(info.type)] = widened_bytes(info.type);
    return all;
  }();
  return tables[std::size_t(type)];
}

void widen_bytes(const WidenedBytes& table, const void* x, void* y, int bytes) {
  for (int i = 0; i < bytes; ++i) store(table[static_cast<const unsigned char*>(x)[i]], y, i);
}

}  // namespace

std::string name_of(TensorType type) { return info_of(type).bits == 0 ? "no type" : std::string(info_of(type).name); }

void widen(TensorType type, const void* x, void* y, int bytes) {
  switch (info_of(type).bits) {
    case 8:
      return widen_bytes(table_of(type), x, y, bytes);
    case 16:
      return widen_halves(type == bf16, x, y, bytes);
    case 32:  // tf32: 10 bits of fraction; the rest is not looked at
      for (int i = 0; i < bytes / 16; ++i) {
        FourWords bits;
        load(bits, x, i);
        bits &= 0xffffe000;
        store(bits, y, i);
      }
      return;
    case 64:
      std::memcpy(y, x, std::size_t(bytes));
      return;
  }
}

JITGEMM_WIDEST void multiply_add(TensorType type, const void* a, const void* b, void* d, int rows, int n) {
  switch (info_of(type).bits) {
    case 8:
      return is_integer(type) ? multiply_add_rows<S32, 32>(a, b, d, rows, n)
                              : multiply_add_rows<F32, 32>(a, b, d, rows, n);
    case 16:
      return multiply_add_rows<F32, 16>(a, b, d, rows, n);
    case 32:
      return multiply_add_rows<F32, 8>(a, b, d, rows, n);
    case 64:
      return multiply_add_rows<F64, 4>(a, b, d, rows, n);
  }
}

}  // namespace jitgemm::emulator
