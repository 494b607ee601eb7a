#include "core/element.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace jitgemm {
namespace {

/// A binary floating-point format of at most 16 bits.
struct Format {
  int fraction_bits, bias;
  int largest;       // bits of the largest finite value
  bool saturates;    // else infinity follows the largest finite value
  int not_a_number;  // a quiet one; for all patterns above the largest finite and infinity
};
constexpr Format f16_format{10, 15, 0x7bff, false, 0x7fff}, bf16_format{7, 127, 0x7f7f, false, 0x7fff},
    e4m3_format{3, 7, 0x7e, true, 0x7f}, e5m2_format{2, 15, 0x7b, true, 0x7f};

const Format* format_of(DataType type) {
  switch (type) {
    case f16:
      return &f16_format;
    case bf16:
      return &bf16_format;
    case e4m3:
      return &e4m3_format;
    case e5m2:
      return &e5m2_format;
    default:
      return nullptr;
  }
}

bool has_infinity(const Format& f) { return f.not_a_number - f.largest > 1; }

double decode_finite(int bits, const Format& f) {
  const int exponent = bits >> f.fraction_bits, fraction = bits & ((1 << f.fraction_bits) - 1);
  const int significand = exponent == 0 ? fraction : fraction | 1 << f.fraction_bits;
  return std::ldexp(significand, std::max(exponent, 1) - f.bias - f.fraction_bits);
}

double decode(int bits, int width, const Format& f) {
  const int magnitude = bits & ((1 << (width - 1)) - 1);
  double x = decode_finite(magnitude, f);
  if (magnitude > f.largest) {
    const bool infinite = has_infinity(f) && magnitude == f.largest + 1;
    x = infinite ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return bits >> (width - 1) ? -x : x;
}

int encode(double x, int width, const Format& f) {
  const int sign = std::signbit(x) ? 1 << (width - 1) : 0;
  if (std::isnan(x)) return f.not_a_number;
  x = std::abs(x);
  int exponent = 1 - f.bias;  // of subnormals
  if (x > 0 && !std::isinf(x)) exponent = std::max(exponent, std::ilogb(x));
  const double units = std::nearbyint(std::ldexp(x, f.fraction_bits - exponent));  // of the last place, ties to even
  const double bits = units + std::ldexp(exponent + f.bias - 1, f.fraction_bits);
  if (!(bits <= f.largest)) return sign | (f.saturates ? f.largest : f.largest + 1);
  return sign | int(bits);
}

template <typename T>
T read(const void* memory, std::int64_t index) {
  T x;
  std::memcpy(&x, static_cast<const char*>(memory) + index * std::int64_t(sizeof x), sizeof x);
  return x;
}
template <typename T>
void write(T x, void* memory, std::int64_t index) {
  std::memcpy(static_cast<char*>(memory) + index * std::int64_t(sizeof x), &x, sizeof x);
}

template <typename Integer>
Integer to_integer(double x) {
  if (std::isnan(x)) return 0;
  using Limits = std::numeric_limits<Integer>;
  return Integer(std::clamp(std::nearbyint(x), double(Limits::min()), double(Limits::max())));
}

}  // namespace

double load_element(const void* memory, std::int64_t index, DataType type) {
  switch (type) {
    case f32:
    case tf32:
      return read<float>(memory, index);
    case f64:
      return read<double>(memory, index);
    case s8:
      return read<std::int8_t>(memory, index);
    case s32:
      return read<std::int32_t>(memory, index);
    case f16:
    case bf16:
      return decode(read<std::uint16_t>(memory, index), 16, *format_of(type));
    case e4m3:
    case e5m2:
      return decode(read<std::uint8_t>(memory, index), 8, *format_of(type));
    case DataType::automatic:
      break;
  }
  return 0;
}

void store_element(double value, void* memory, std::int64_t index, DataType type) {
  switch (type) {
    case f32:
    case tf32:
      return write(float(value), memory, index);
    case f64:
      return write(value, memory, index);
    case s8:
      return write(to_integer<std::int8_t>(value), memory, index);
    case s32:
      return write(to_integer<std::int32_t>(value), memory, index);
    case f16:
    case bf16:
      return write(std::uint16_t(encode(value, 16, *format_of(type))), memory, index);
    case e4m3:
    case e5m2:
      return write(std::uint8_t(encode(value, 8, *format_of(type))), memory, index);
    case DataType::automatic:
      break;
  }
}

double unit_roundoff(DataType type) {
  if (const Format* f = format_of(type)) return std::ldexp(1, -f->fraction_bits - 1);
  if (type == s8 || type == s32) return 0;
  return type == f64 ? 0x1p-53 : 0x1p-24;
}

double largest_finite(DataType type) {
  if (const Format* f = format_of(type)) return decode_finite(f->largest, *f);
  if (type == s8) return 127;
  if (type == s32) return 0x1p31 - 1;
  return type == f64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
}

double half_smallest_subnormal(DataType type) {
  if (const Format* f = format_of(type)) return std::ldexp(1, -f->bias - f->fraction_bits);
  if (type == s8 || type == s32) return 0;
  return type == f64 ? 0 : 0x1p-150;
}

}  // namespace jitgemm
