#include "reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "core/problem.hpp"

namespace jitgemm::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// A binary floating-point format in 16 bits.
struct Format16 {
  int fraction_bits, exponent_bias, exponent_max;
};
constexpr Format16 format_f16{10, 15, 31}, format_bf16{7, 127, 255};

double decode(std::uint16_t bits, const Format16& f) {
  const int exponent = bits >> f.fraction_bits & f.exponent_max;
  const int fraction = bits & ((1 << f.fraction_bits) - 1);
  double value;
  if (exponent == f.exponent_max) {
    value = fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : infinity;
  } else if (exponent == 0) {
    value = std::ldexp(fraction, 1 - f.exponent_bias - f.fraction_bits);
  } else {
    value = std::ldexp(fraction | 1 << f.fraction_bits, exponent - f.exponent_bias - f.fraction_bits);
  }
  return bits & 0x8000 ? -value : value;
}

std::uint16_t encode(double value, const Format16& f) {
  const int infinity_bits = f.exponent_max << f.fraction_bits;
  if (std::isnan(value)) return 0x7fff;
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(value);
  if (magnitude == 0) return std::uint16_t(sign);
  if (std::isinf(magnitude)) return std::uint16_t(sign | infinity_bits);
  const int exponent = std::max(std::ilogb(magnitude), 1 - f.exponent_bias);  // subnormals share the lowest
  const double in_ulps = std::ldexp(magnitude, f.fraction_bits - exponent);   // exact
  const auto rounded = std::int64_t(std::nearbyint(in_ulps));                 // to even: the default mode
  // The implicit bit, and a carry out of the fraction, add to the exponent field.
  const std::int64_t bits = rounded + (std::int64_t(exponent - 1 + f.exponent_bias) << f.fraction_bits);
  return std::uint16_t(sign | std::min<std::int64_t>(bits, infinity_bits));
}

/// What rounds to infinity, from here on.
double overflow_threshold(DataType type) {
  switch (type) {
    case f16:
      return 65520;
    case bf16:
      return 0x1p128 - 0x1p119;
    case f32:
      return 0x1p128 - 0x1p103;
  }
  return infinity;
}

double half_smallest_subnormal(DataType type) { return type == f16 ? 0x1p-25 : type == bf16 ? 0x1p-134 : 0x1p-150; }

struct Strides {
  std::int64_t row, column;
};
Strides strides_a(const Problem& p) { return p.layout_a == Layout::row_major ? Strides{p.lda, 1} : Strides{1, p.lda}; }
Strides strides_b(const Problem& p) { return p.layout_b == Layout::row_major ? Strides{p.ldb, 1} : Strides{1, p.ldb}; }

/// Sums over k, and the extremes of the sums so far.
struct Sums {
  double total = 0, low = 0, high = 0;
};

/// From sums to one element of D and its bound.
ReferenceElement finish(const Problem& p, const Operands& operands, double g_k, const Sums& sums, std::int64_t row,
                        std::int64_t column) {
  constexpr double u_acc = 0x1p-24, f32_max = 0x1.fp127;
  const double range = sums.high - sums.low;  // the largest contiguous partial sum
  const double product = reads_ab(p) ? p.alpha * sums.total : 0;
  const double c = reads_c(p) ? p.beta * load(operands.c, row * p.ldc + column, p.d) : 0;
  const double bias = p.bias ? load(operands.bias, column, p.d) : 0;
  const double x = product + c + bias;

  double d = x, lipschitz = 1;
  if (p.activation == Activation::relu) d = x < 0 ? 0 : x;
  if (p.activation == Activation::leaky_relu) {
    d = x < 0 ? p.slope * x : x;
    lipschitz = std::max(1.0, std::abs(p.slope));
  }
  if (!std::isfinite(x)) return {d, 0};  // by the inputs alone: float64 cannot overflow here

  const double magnitude = std::abs(product) + std::abs(c) + std::abs(bias);
  if (range > f32_max || magnitude > f32_max || lipschitz * magnitude > f32_max) return {d, infinity};
  const double tiny = 0x1p-149 * (1 + std::abs(p.alpha)) * (1 + double(p.k));  // partial sums may be subnormal too
  const double error = lipschitz * (std::abs(p.alpha) * g_k * range + 4 * u_acc * magnitude + tiny);
  const double u = unit_roundoff(p.d);
  return {d, u * std::abs(d) + (1 + u) * error + half_smallest_subnormal(p.d)};
}

}  // namespace

double load(const void* array, std::int64_t i, DataType type) {
  if (type == f32) {
    float value;
    std::memcpy(&value, static_cast<const char*>(array) + i * 4, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, static_cast<const char*>(array) + i * 2, 2);
  return decode(bits, type == f16 ? format_f16 : format_bf16);
}

void store(double value, void* array, std::int64_t i, DataType type) {
  if (type == f32) {
    const float rounded = float(value);
    std::memcpy(static_cast<char*>(array) + i * 4, &rounded, 4);
    return;
  }
  const std::uint16_t bits = encode(value, type == f16 ? format_f16 : format_bf16);
  std::memcpy(static_cast<char*>(array) + i * 2, &bits, 2);
}

double g(MainLoop main_loop, std::int64_t k) {
  return double((k + 15) / 16 * 16) * (main_loop == MainLoop::sm90 ? 0.75 : 1.5) * 0x1p-24;
}

double unit_roundoff(DataType type) { return type == f16 ? 0x1p-11 : type == bf16 ? 0x1p-8 : 0x1p-24; }

Reference reference(const Problem& p, const Operands& operands, MainLoop main_loop) {
  const auto count = std::size_t(p.m * p.n);
  Reference result{std::vector<double>(count), std::vector<double>(count)};
  const double g_k = g(main_loop, p.k);
  const std::int64_t depth = reads_ab(p) ? p.k : 0;
  constexpr std::int64_t width = 64;  // columns at a time, in the cache
  const Strides a = strides_a(p), b = strides_b(p);
  std::vector<double> b_panel(std::size_t(depth * width)), a_row(std::size_t(depth), 0.0);
  for (std::int64_t column = 0; column < p.n; column += width) {
    const std::int64_t columns = std::min(width, p.n - column);
    for (std::int64_t k = 0; k < depth; ++k)
      for (std::int64_t j = 0; j < columns; ++j)
        b_panel[std::size_t(k * width + j)] = load(operands.b, k * b.row + (column + j) * b.column, p.b);
    for (std::int64_t row = 0; row < p.m; ++row) {
      for (std::int64_t k = 0; k < depth; ++k)
        a_row[std::size_t(k)] = load(operands.a, row * a.row + k * a.column, p.a);
      double total[width] = {}, low[width] = {}, high[width] = {};
      for (std::int64_t k = 0; k < depth; ++k) {
        const double x = a_row[std::size_t(k)];
        const double* y = &b_panel[std::size_t(k * width)];
        for (std::int64_t j = 0; j < width; ++j) {
          total[j] += x * y[j];
          low[j] = total[j] < low[j] ? total[j] : low[j];
          high[j] = total[j] > high[j] ? total[j] : high[j];
        }
      }
      for (std::int64_t j = 0; j < columns; ++j) {
        const ReferenceElement element = finish(p, operands, g_k, {total[j], low[j], high[j]}, row, column + j);
        result.d[std::size_t(row * p.n + column + j)] = element.d;
        result.bound[std::size_t(row * p.n + column + j)] = element.bound;
      }
    }
  }
  return result;
}

ReferenceElement reference_element(const Problem& p, const Operands& operands, MainLoop main_loop, std::int64_t row,
                                   std::int64_t column) {
  const Strides a = strides_a(p), b = strides_b(p);
  Sums sums;
  for (std::int64_t k = 0; reads_ab(p) && k < p.k; ++k) {
    sums.total +=
        load(operands.a, row * a.row + k * a.column, p.a) * load(operands.b, k * b.row + column * b.column, p.b);
    sums.low = std::min(sums.low, sums.total);
    sums.high = std::max(sums.high, sums.total);
  }
  return finish(p, operands, g(main_loop, p.k), sums, row, column);
}

bool within(double value, const ReferenceElement& expected, DataType type) {
  if (std::isnan(expected.d)) return std::isnan(value);
  if (std::isinf(expected.d)) return value == expected.d;
  if (std::isinf(expected.bound)) return true;
  if (std::isinf(value)) {
    return std::abs(expected.d) + expected.bound >= overflow_threshold(type) &&
           std::signbit(value) == std::signbit(expected.d);
  }
  return std::abs(value - expected.d) <= expected.bound;
}

std::string violation(const Reference& expected, const Problem& p, const void* d) {
  std::int64_t wrong = 0;
  std::ostringstream text;
  for (std::int64_t row = 0; row < p.m; ++row) {
    for (std::int64_t column = 0; column < p.n; ++column) {
      const auto i = std::size_t(row * p.n + column);
      const ReferenceElement element{expected.d[i], expected.bound[i]};
      const double value = load(d, row * p.ldd + column, p.d);
      if (within(value, element, p.d)) continue;
      if (wrong++ == 0) {
        text.precision(9);
        text << "D(" << row << ", " << column << ") is " << value << ", not " << element.d << " +- " << element.bound;
      }
    }
  }
  if (wrong == 0) return "";
  text << "; " << wrong << " of " << p.m * p.n << " elements are wrong";
  return text.str();
}

}  // namespace jitgemm::test
