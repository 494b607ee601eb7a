#include "tune/reference.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/problem.hpp"

namespace jitgemm {
namespace {

constexpr std::int64_t chunk_bytes = std::int64_t{16} << 20;
constexpr double f16_overflow = 65520;  // rounds to infinity

double activated(double x, const Problem& problem) {
  if (problem.activation == Activation::none || x > 0 || std::isnan(x)) return x;
  return problem.activation == Activation::relu ? 0 : x * problem.slope;
}

}  // namespace

double to_double(const void* element, DataType type) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, element, size_of(type));
  if (type == f32) return std::bit_cast<float>(bits);
  if (type == bf16) return std::bit_cast<float>(bits << 16);
  const double sign = bits & 0x8000 ? -1 : 1;
  const int exponent = int(bits >> 10 & 31), fraction = int(bits & 1023);
  if (exponent == 31) return fraction ? std::nan("") : sign * HUGE_VAL;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

Reference::Reference(Backend& backend, const Problem& problem, const Operands& operands)
    : backend_(backend), problem_(problem), operands_(operands) {}

double Reference::rounding() const { return problem_.d == f16 ? 0x1p-11 : problem_.d == bf16 ? 0x1p-8 : 0x1p-24; }

// Tensor cores truncate each sum of 8 to 16 products, and f32 adds those up: so many roundings, all of one sign at
// worst.
double Reference::accumulation() const { return 0x1p-22 * (16 + double(problem_.k) / 16); }

bool Reference::Element::accepts(double d) const {
  if (d == value || (std::isnan(d) && std::isnan(value))) return true;
  return std::abs(d - value) <= tolerance;
}

void Reference::fetch(const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& columns) {
  if (!reads_ab(problem_)) return;
  fetch_vectors({operands_.a, problem_.layout_a == Layout::row_major, problem_.lda}, rows, rows_);
  fetch_vectors({operands_.b, problem_.layout_b == Layout::column_major, problem_.ldb}, columns, columns_);
}

void Reference::fetch_vectors(const Matrix& matrix, const std::vector<std::int64_t>& indices, Vectors& vectors) {
  std::vector<std::int64_t> missing;
  std::copy_if(indices.begin(), indices.end(), std::back_inserter(missing),
               [&](std::int64_t index) { return !vectors.contains(index); });
  if (missing.empty()) return;
  const std::int64_t k = problem_.k, size = std::int64_t(size_of(problem_.a));
  const char* const memory = static_cast<const char*>(matrix.memory);
  for (std::int64_t index : missing) vectors[index].resize(std::size_t(k));

  std::vector<char> chunk;
  if (matrix.adjacent) {
    chunk.resize(std::size_t(k * size));
    for (std::int64_t index : missing) {
      backend_.copy_to_host(chunk.data(), memory + index * matrix.ld * size, chunk.size());
      for (std::int64_t i = 0; i < k; ++i)
        vectors[index][std::size_t(i)] = to_double(&chunk[std::size_t(i * size)], problem_.a);
    }
    return;
  }
  // Their elements are a leading dimension apart: copy everything between, some k at a time.
  const auto [first, last] = std::minmax_element(missing.begin(), missing.end());
  const std::int64_t width = *last - *first + 1, step = std::max<std::int64_t>(1, chunk_bytes / (matrix.ld * size));
  for (std::int64_t begin = 0; begin < k; begin += step) {
    const std::int64_t count = std::min(step, k - begin);
    chunk.resize(std::size_t(((count - 1) * matrix.ld + width) * size));
    backend_.copy_to_host(chunk.data(), memory + (begin * matrix.ld + *first) * size, chunk.size());
    for (std::int64_t index : missing) {
      std::vector<double>& vector = vectors[index];
      for (std::int64_t i = 0; i < count; ++i) {
        vector[std::size_t(begin + i)] =
            to_double(&chunk[std::size_t((i * matrix.ld + index - *first) * size)], problem_.a);
      }
    }
  }
}

double Reference::element(const void* memory, std::int64_t index) {
  char bytes[4];
  const std::size_t size = size_of(problem_.d);
  backend_.copy_to_host(bytes, static_cast<const char*>(memory) + std::size_t(index) * size, size);
  return to_double(bytes, problem_.d);
}

Reference::Element Reference::at(std::int64_t row, std::int64_t column) {
  fetch({row}, {column});
  double sum = 0, absolute = 0;
  if (reads_ab(problem_)) {
    const std::vector<double>&a = rows_.at(row), &b = columns_.at(column);
    for (std::size_t i = 0; i < a.size(); ++i) {
      sum += a[i] * b[i];
      absolute += std::abs(a[i] * b[i]);
    }
  }
  const double scale = reads_ab(problem_) ? problem_.alpha : 0;
  double value = scale == 0 ? 0 : scale * sum, addends = 0;
  if (reads_c(problem_)) addends += problem_.beta * element(operands_.c, row * problem_.ldc + column);
  if (problem_.bias) addends += element(operands_.bias, column);
  value += addends;

  Element result;
  result.products = scale == 0 ? 0 : std::abs(scale) * absolute;
  // Activations neither stretch differences, unless a slope is above 1, nor are they smooth at 0.
  const double lipschitz =
      std::max(1.0, problem_.activation == Activation::leaky_relu ? std::abs(problem_.slope) : 1.0);
  const double before = accumulation() * result.products + 0x1p-22 * (std::abs(addends) + std::abs(value));
  result.value = activated(value, problem_);
  result.tolerance = lipschitz * before + rounding() * (std::abs(result.value) + lipschitz * before) + 0x1p-25;
  if (problem_.d == f16 && std::abs(result.value) + result.tolerance >= f16_overflow) {
    result.tolerance = HUGE_VAL;  // infinity, or the last numbers before it
  }
  return result;
}

}  // namespace jitgemm
