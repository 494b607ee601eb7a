#include "core/element.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/data_types.hpp"

namespace jitgemm {
namespace {

bool has_infinity(const ShortFloat& f) { return f.not_a_number - f.largest > 1; }

double decode_finite(int bits, const ShortFloat& f) {
  const int exponent = bits >> f.fraction_bits, fraction = bits & ((1 << f.fraction_bits) - 1);
  const int significand = exponent == 0 ? fraction : fraction | 1 << f.fraction_bits;
  return std::ldexp(significand, std::max(exponent, 1) - f.bias - f.fraction_bits);
}

double decode(int bits, int width, const ShortFloat& f) {
  const int magnitude = bits & ((1 << (width - 1)) - 1);
  double x = decode_finite(magnitude, f);
  if (magnitude > f.largest) {
    const bool infinite = has_infinity(f) && magnitude == f.largest + 1;
    x = infinite ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return bits >> (width - 1) ? -x : x;
}

int encode(double x, int width, const ShortFloat& f) {
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

/// The lowest `bits` of what is there.
std::uint64_t read_bits(const void* memory, std::int64_t index, int bits) {
  switch (bits) {
    case 8:
      return read<std::uint8_t>(memory, index);
    case 16:
      return read<std::uint16_t>(memory, index);
    case 32:
      return read<std::uint32_t>(memory, index);
    default:
      return 0;
  }
}
void write_bits(std::uint64_t x, void* memory, std::int64_t index, int bits) {
  switch (bits) {
    case 8:
      return write(std::uint8_t(x), memory, index);
    case 16:
      return write(std::uint16_t(x), memory, index);
    case 32:
      return write(std::uint32_t(x), memory, index);
  }
}

std::int64_t to_integer(double x, const IntegerRange& range) {
  if (std::isnan(x)) return 0;
  return std::int64_t(std::clamp(std::nearbyint(x), double(range.lowest), double(range.largest)));
}

}  // namespace

double load_element(const void* memory, std::int64_t index, DataType type) {
  const DataTypeInfo& info = info_of(type);
  if (info.is_short_float()) return decode(int(read_bits(memory, index, info.bits)), info.bits, info.short_float);
  if (info.is_integer()) {
    const auto x = std::int64_t(read_bits(memory, index, info.bits));
    return double(x > info.integers.largest ? x - (std::int64_t(1) << info.bits) : x);
  }
  if (info.bits == 32) return read<float>(memory, index);
  return info.bits == 64 ? read<double>(memory, index) : 0;
}

void store_element(double value, void* memory, std::int64_t index, DataType type) {
  const DataTypeInfo& info = info_of(type);
  if (info.is_short_float())
    write_bits(std::uint64_t(encode(value, info.bits, info.short_float)), memory, index, info.bits);
  else if (info.is_integer())
    write_bits(std::uint64_t(to_integer(value, info.integers)), memory, index, info.bits);
  else if (info.bits == 32)
    write(float(value), memory, index);
  else if (info.bits == 64)
    write(value, memory, index);
}

double unit_roundoff(DataType type) {
  const DataTypeInfo& info = info_of(type);
  if (info.is_short_float()) return std::ldexp(1, -info.short_float.fraction_bits - 1);
  if (info.is_integer()) return 0;
  return info.bits == 64 ? 0x1p-53 : 0x1p-24;
}

double largest_finite(DataType type) {
  const DataTypeInfo& info = info_of(type);
  if (info.is_short_float()) return decode_finite(info.short_float.largest, info.short_float);
  if (info.is_integer()) return double(info.integers.largest);
  return info.bits == 64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
}

double half_smallest_subnormal(DataType type) {
  const DataTypeInfo& info = info_of(type);
  if (info.is_short_float()) return std::ldexp(1, -info.short_float.bias - info.short_float.fraction_bits);
  return info.is_integer() || info.bits == 64 ? 0 : 0x1p-150;
}

double random_deviation(DataType type) { return info_of(type).is_integer() ? 3 : 1; }

}  // namespace jitgemm
