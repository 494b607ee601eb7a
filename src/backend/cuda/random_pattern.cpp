#include <cstring>
#include <random>

#include "backend/cuda/cuda_backend.hpp"
#include "core/element.hpp"

namespace jitgemm::cuda {
namespace {

template <std::size_t SIZE>
void draw(const std::string& sample, std::mt19937_64& engine, std::string& pattern) {
  const std::size_t elements = pattern.size() / SIZE;
  for (std::size_t i = 0; i < elements; i += 4) {
    const std::uint64_t bits = engine();
    for (std::size_t j = 0; j < 4 && i + j < elements; ++j)
      std::memcpy(&pattern[(i + j) * SIZE], &sample[(bits >> 16 * j & 0xffff) * SIZE], SIZE);
  }
}

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t begin_of_piece(std::uint64_t seed, std::uint64_t piece) { return mix(mix(seed) + piece); }

std::string random_pattern(DataType type, std::size_t elements) {
  // A sample of 2^16 normal values, drawn from again: a draw is much cheaper than a new normal value.
  constexpr int sample_size = 1 << 16;
  const std::size_t size = size_of(type);
  std::mt19937_64 engine(2024);
  std::normal_distribution<double> normal(0, random_deviation(type));
  std::string sample(sample_size * size, '\0'), pattern(elements * size, '\0');
  for (int i = 0; i < sample_size; ++i) store_element(normal(engine), sample.data(), i, type);
  switch (size) {
    case 1:
      draw<1>(sample, engine, pattern);
      break;
    case 2:
      draw<2>(sample, engine, pattern);
      break;
    case 4:
      draw<4>(sample, engine, pattern);
      break;
    case 8:
      draw<8>(sample, engine, pattern);
      break;
  }
  return pattern;
}

}  // namespace jitgemm::cuda
