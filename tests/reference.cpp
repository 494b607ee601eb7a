#include "reference.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <vector>

#include "activations.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"

namespace jitgemm::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// A binary floating-point format. Its largest exponent field is for infinity and NaN (IEEE), or has finite values but
/// for all ones, a NaN.
struct Format {
  int bits, fraction_bits, exponent_bias;
  bool ieee, saturates;

  int sign_bit() const { return 1 << (bits - 1); }
  int all_ones() const { return sign_bit() - 1; }
  int infinity_bits() const { return all_ones() >> fraction_bits << fraction_bits; }  // if ieee
  int largest_finite() const { return (ieee ? infinity_bits() : all_ones()) - 1; }
};
Format format_of(DataType type) {
  switch (type) {
    case f16:
      return {16, 10, 15, true, false};
    case bf16:
      return {16, 7, 127, true, false};
    case e4m3:
      return {8, 3, 7, false, true};
    default:
      return {8, 2, 15, true, true};  // e5m2
  }
}

double decode_finite(int magnitude, const Format& f) {
  const int exponent = magnitude >> f.fraction_bits, fraction = magnitude & ((1 << f.fraction_bits) - 1);
  if (exponent == 0) return std::ldexp(fraction, 1 - f.exponent_bias - f.fraction_bits);
  return std::ldexp(fraction | 1 << f.fraction_bits, exponent - f.exponent_bias - f.fraction_bits);
}

double decode(int bits, const Format& f) {
  const int magnitude = bits & f.all_ones();
  double value = decode_finite(magnitude, f);
  if (magnitude > f.largest_finite()) {
    value = f.ieee && magnitude == f.infinity_bits() ? infinity : std::numeric_limits<double>::quiet_NaN();
  }
  return bits & f.sign_bit() ? -value : value;
}

/// decode() of all bits: references load millions.
const std::vector<double>& values_of(DataType type) {
  const auto all = [](const Format& f) {
    std::vector<double> values(std::size_t(1) << f.bits);
    for (std::size_t bits = 0; bits < values.size(); ++bits) values[bits] = decode(int(bits), f);
    return values;
  };
  static const std::array tables{all(format_of(f16)), all(format_of(bf16)), all(format_of(e4m3)), all(format_of(e5m2))};
  return tables[type == f16 ? 0 : type == bf16 ? 1 : type == e4m3 ? 2 : 3];
}

int encode(double value, const Format& f) {
  if (std::isnan(value)) return f.all_ones();
  const int sign = std::signbit(value) ? f.sign_bit() : 0,
            overflow = f.saturates ? f.largest_finite() : f.infinity_bits();
  const double magnitude = std::abs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | overflow;
  const int exponent = std::max(std::ilogb(magnitude), 1 - f.exponent_bias);  // subnormals share the lowest
  const double in_ulps = std::ldexp(magnitude, f.fraction_bits - exponent);   // exact
  const auto rounded = std::int64_t(std::nearbyint(in_ulps));                 // to even: the default mode
  // The implicit bit, and a carry out of the fraction, add to the exponent field.
  const std::int64_t bits = rounded + (std::int64_t(exponent - 1 + f.exponent_bias) << f.fraction_bits);
  return sign | int(bits > f.largest_finite() ? overflow : bits);
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
    default:
      return infinity;
  }
}

double half_smallest_subnormal(DataType type) {
  switch (type) {
    case f16:
      return 0x1p-25;
    case bf16:
      return 0x1p-134;
    case f32:
      return 0x1p-150;
    case e4m3:
      return 0x1p-10;
    case e5m2:
      return 0x1p-17;
    default:
      return 0;
  }
}

bool saturates(DataType type) { return type == e4m3 || type == e5m2; }

DataType type_of_addends(const Problem& p) { return saturates(p.d.type) ? bf16 : p.d.type; }

/// As the multiplication reads it.
double factor(const void* array, std::int64_t i, DataType type) {
  if (type != tf32) return load(array, i, type);
  std::uint32_t bits;
  std::memcpy(&bits, static_cast<const char*>(array) + i * 4, 4);
  bits &= ~0x1fffu;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

struct Strides {
  std::int64_t row, column, batch;
};
Strides strides_a(const Problem& p) {
  return p.a.layout == Layout::row_major ? Strides{p.a.ld, 1, p.a.stride} : Strides{1, p.a.ld, p.a.stride};
}
Strides strides_b(const Problem& p) {
  return p.b.layout == Layout::row_major ? Strides{p.b.ld, 1, p.b.stride} : Strides{1, p.b.ld, p.b.stride};
}

/// Of a block of 128 of k: what scales row (column) `row` of a matrix with so many; 1 where blocks have no scales.
double scale_of_block(const float* scales, Scaling scaling, std::int64_t row, std::int64_t rows, std::int64_t k,
                      std::int64_t depth) {
  if (scaling == Scaling::block_1x128) return double(scales[k / 128 * ((rows + 3) / 4 * 4) + row]);
  if (scaling == Scaling::block_128x128) return double(scales[row / 128 * ((depth + 127) / 128) + k / 128]);
  return 1;
}

/// All of one matrix of a batch, which are apart as operand_matrix.hpp says.
double scale_of_a(const Problem& p, const Operands& operands, std::int64_t batch, std::int64_t row, std::int64_t k) {
  return scale_of_block(operands.scale_a + batch * scale_stride_a(p), p.a.scaling, row, p.m, k, p.k);
}
double scale_of_b(const Problem& p, const Operands& operands, std::int64_t batch, std::int64_t column, std::int64_t k) {
  return scale_of_block(operands.scale_b + batch * scale_stride_b(p), p.b.scaling, column, p.n, k, p.k);
}

/// Sums over k, and the extremes of the sums so far.
struct Sums {
  double total = 0, low = 0, high = 0;
};

double wrapped(double x) { return double(std::int32_t(std::uint32_t(std::int64_t(x)))); }

/// From sums to one element of D and its bound.
ReferenceElement finish(const Problem& p, const Operands& operands, double g_k, const Scales& scales, const Sums& sums,
                        std::int64_t batch, std::int64_t row, std::int64_t column) {
  const double range = sums.high - sums.low;  // the largest contiguous partial sum
  const double alpha = p.alpha * scales.product *
                       (p.a.scaling == Scaling::vector && reads_ab(p) ? double(operands.scale_a[row]) : 1) *
                       (p.b.scaling == Scaling::vector && reads_ab(p) ? double(operands.scale_b[column]) : 1);
  const double product = reads_ab(p) ? alpha * sums.total : 0;
  const DataType addend = type_of_addends(p);
  const double c = reads_c(p) ? p.beta * load(operands.c, batch * p.c.stride + row * p.c.ld + column, addend) : 0;
  const double bias =
      p.epilogue.bias == Bias::none ? 0 : load(operands.bias, p.epilogue.bias == Bias::along_m ? row : column, addend);
  const ExpectedActivation& activation = expected_of(p.epilogue.activation);
  if (p.d.type == s32) {
    const double x = wrapped(product + c + bias);  // small enough inputs that the sum itself is exact
    return {activation.value(x, p.epilogue.slope), 0};
  }
  const double u_acc = p.d.type == f64 ? 0x1p-53 : 0x1p-24, acc_max = p.d.type == f64 ? 0x1.fp1023 : 0x1.fp127;
  const double x = product + c + bias, activated = activation.value(x, p.epilogue.slope);
  double d = activated * scales.d;
  if (saturates(p.d.type) && !std::isnan(d)) {
    const double largest = decode_finite(format_of(p.d.type).largest_finite(), format_of(p.d.type));
    d = std::clamp(d, -largest, largest);
  }
  if (!std::isfinite(x)) return {d, 0};  // by the inputs alone: float64 cannot overflow here

  const double magnitude = std::abs(product) + std::abs(c) + std::abs(bias);
  const double lipschitz = activation.largest_slope(magnitude, p.epilogue.slope),
               h = activation.exact ? activation.operations->count() : 16;
  if (range > acc_max || magnitude > acc_max || lipschitz * magnitude > acc_max) return {d, infinity};
  const double smallest = p.d.type == f64 ? 0x1p-1074 : 0x1p-149;
  const double tiny = smallest * (1 + std::abs(alpha)) * (1 + double(p.k));  // partial sums may be subnormal too
  const double error = (lipschitz * (std::abs(alpha) * g_k * range + 4 * u_acc * magnitude + tiny) +
                        h * u_acc * std::max(std::abs(x), std::abs(activated))) *
                       std::abs(scales.d);
  const double u = unit_roundoff(p.d.type);
  return {d, u * std::abs(d) + (1 + u) * error + half_smallest_subnormal(p.d.type)};
}

/// In long double, whose rounding is beyond that of a double precision D.
Sums precise_sums(const Problem& p, const Operands& operands, std::int64_t batch, std::int64_t row,
                  std::int64_t column) {
  const Strides a = strides_a(p), b = strides_b(p);
  long double total = 0, low = 0, high = 0;
  for (std::int64_t k = 0; reads_ab(p) && k < p.k; ++k) {
    total += (long double)factor(operands.a, batch * a.batch + row * a.row + k * a.column, p.a.type) *
             factor(operands.b, batch * b.batch + k * b.row + column * b.column, p.b.type) *
             scale_of_a(p, operands, batch, row, k) * scale_of_b(p, operands, batch, column, k);
    low = std::min(low, total);
    high = std::max(high, total);
  }
  return {double(total), double(low), double(high)};
}

}  // namespace

double load(const void* array, std::int64_t i, DataType type) {
  const char* at = static_cast<const char*>(array) + i * std::int64_t(size_of(type));
  const auto as = [at](auto value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (type) {
    case f32:
    case tf32:
      return as(0.0f);
    case f64:
      return as(0.0);
    case s8:
      return as(std::int8_t());
    case s32:
      return as(std::int32_t());
    case f16:
    case bf16:
      return values_of(type)[as(std::uint16_t())];
    case e4m3:
    case e5m2:
      return values_of(type)[as(std::uint8_t())];
    case DataType::automatic:
      break;
  }
  return 0;
}

void store(double value, void* array, std::int64_t i, DataType type) {
  char* at = static_cast<char*>(array) + i * std::int64_t(size_of(type));
  const auto as = [at](auto rounded) { std::memcpy(at, &rounded, sizeof rounded); };
  switch (type) {
    case f32:
    case tf32:
      return as(float(value));
    case f64:
      return as(value);
    case s8:
      return as(std::int8_t(std::clamp(std::nearbyint(value), -128.0, 127.0)));
    case s32:
      return as(std::int32_t(std::clamp(std::nearbyint(value), -0x1p31, 0x1p31 - 1)));
    case f16:
    case bf16:
      return as(std::uint16_t(encode(value, format_of(type))));
    case e4m3:
    case e5m2:
      return as(std::uint8_t(encode(value, format_of(type))));
    case DataType::automatic:
      break;
  }
}

double g(MainLoop main_loop, const Problem& p) {
  const bool sm90 = main_loop == MainLoop::sm90;
  const double products = double((p.k + 15) / 16 * 16);
  const auto wgmma_fp8 = [](double count) { return (count + 16) * 0.26 * 0x1p-13; };
  switch (p.a.type) {
    case f64:
      return (products + 4) * 0x1p-53;
    case f32:
      return (products + 4) * 0x1p-24;
    case tf32:
      return products * (sm90 ? 1.0 : 2.0) * 0x1p-24;
    case e4m3:
    case e5m2:
      if (sm90 && p.accumulation == Accumulation::fast) return wgmma_fp8(products);
      if (sm90) return wgmma_fp8(std::min(products, 128.0)) + products * 1.5 * 0x1p-24;
      [[fallthrough]];  // as f16
    default:
      return products * (sm90 ? 0.75 : 1.5) * 0x1p-24;
  }
}

double unit_roundoff(DataType type) {
  switch (type) {
    case f16:
      return 0x1p-11;
    case bf16:
      return 0x1p-8;
    case e4m3:
      return 0x1p-4;
    case e5m2:
      return 0x1p-3;
    case f64:
      return 0x1p-53;
    default:
      return 0x1p-24;
  }
}

Reference reference(const Problem& p, const Operands& operands, MainLoop main_loop, const Scales& scales) {
  const auto count = std::size_t(p.batch * p.m * p.n);
  Reference result{std::vector<double>(count), std::vector<double>(count)};
  const double g_k = g(main_loop, p);
  const std::int64_t depth = reads_ab(p) ? p.k : 0;
  constexpr std::int64_t width = 64;  // columns at a time, in the cache
  const Strides a = strides_a(p), b = strides_b(p);
  std::vector<double> b_panel(std::size_t(depth * width)), a_row(std::size_t(depth), 0.0);
  const auto set = [&](std::int64_t batch, std::int64_t row, std::int64_t column, const Sums& sums) {
    const ReferenceElement element = finish(p, operands, g_k, scales, sums, batch, row, column);
    const auto i = std::size_t((batch * p.m + row) * p.n + column);
    result.d[i] = element.d;
    result.bound[i] = element.bound;
  };
  for (std::int64_t batch = 0; batch < p.batch; ++batch) {
    for (std::int64_t column = 0; column < p.n; column += width) {
      const std::int64_t columns = std::min(width, p.n - column);
      if (p.d.type == f64) {
        for (std::int64_t row = 0; row < p.m; ++row)
          for (std::int64_t j = column; j < column + columns; ++j)
            set(batch, row, j, precise_sums(p, operands, batch, row, j));
        continue;
      }
      for (std::int64_t k = 0; k < depth; ++k)
        for (std::int64_t j = 0; j < columns; ++j)
          b_panel[std::size_t(k * width + j)] =
              factor(operands.b, batch * b.batch + k * b.row + (column + j) * b.column, p.b.type) *
              scale_of_b(p, operands, batch, column + j, k);
      for (std::int64_t row = 0; row < p.m; ++row) {
        for (std::int64_t k = 0; k < depth; ++k)
          a_row[std::size_t(k)] = factor(operands.a, batch * a.batch + row * a.row + k * a.column, p.a.type) *
                                  scale_of_a(p, operands, batch, row, k);
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
        for (std::int64_t j = 0; j < columns; ++j) set(batch, row, column + j, {total[j], low[j], high[j]});
      }
    }
  }
  return result;
}

ReferenceElement reference_element(const Problem& p, const Operands& operands, MainLoop main_loop, std::int64_t batch,
                                   std::int64_t row, std::int64_t column, const Scales& scales) {
  return finish(p, operands, g(main_loop, p), scales, precise_sums(p, operands, batch, row, column), batch, row,
                column);
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
  for (std::int64_t batch = 0; batch < p.batch; ++batch) {
    for (std::int64_t row = 0; row < p.m; ++row) {
      for (std::int64_t column = 0; column < p.n; ++column) {
        const auto i = std::size_t((batch * p.m + row) * p.n + column);
        const ReferenceElement element{expected.d[i], expected.bound[i]};
        const double value = load(d, batch * p.d.stride + row * p.d.ld + column, p.d.type);
        if (within(value, element, p.d.type)) continue;
        if (wrong++ == 0) {
          text.precision(9);
          text << "D(" << row << ", " << column << ")";
          if (p.batch > 1) text << " of matrix " << batch;
          text << " is " << value << ", not " << element.d << " +- " << element.bound;
        }
      }
    }
  }
  if (wrong == 0) return "";
  text << "; " << wrong << " of " << p.batch * p.m * p.n << " elements are wrong";
  return text.str();
}

}  // namespace jitgemm::test
