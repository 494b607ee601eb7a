#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "backend/cuda/cuda_backend.hpp"

namespace jitgemm::cuda {
namespace {

std::uint16_t round_to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// Of |x| < 65504.
std::uint16_t round_to_f16(float x) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const float magnitude = std::abs(x);
  if (magnitude < 0x1p-14f) return std::uint16_t(sign | int(std::nearbyint(magnitude * 0x1p24f)));  // subnormal
  const int exponent = std::ilogb(magnitude);
  const int mantissa = int(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));  // 1024 .. 2048
  return std::uint16_t(sign | ((exponent + 14) * 1024 + mantissa));
}

template <typename Element, typename Convert>
std::string draw(std::size_t elements, Convert convert) {
  // A sample of 2^16 normal values, drawn from again: a draw is much cheaper than a new normal value.
  std::mt19937_64 engine(2024);
  std::normal_distribution<float> normal;
  std::vector<Element> sample(1 << 16);
  for (Element& x : sample) x = convert(normal(engine));

  std::string pattern(elements * sizeof(Element), '\0');
  auto* out = reinterpret_cast<Element*>(pattern.data());
  for (std::size_t i = 0; i < elements; i += 4) {
    const std::uint64_t bits = engine();
    for (std::size_t j = 0; j < 4 && i + j < elements; ++j) out[i + j] = sample[bits >> 16 * j & 0xffff];
  }
  return pattern;
}

}  // namespace

std::string random_pattern(DataType type, std::size_t elements) {
  if (type == f32) return draw<float>(elements, [](float x) { return x; });
  return draw<std::uint16_t>(elements, type == f16 ? round_to_f16 : round_to_bf16);
}

}  // namespace jitgemm::cuda
