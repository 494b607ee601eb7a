#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>

namespace jitgemm::test {

/// What this process draws its inputs from: JITGEMM_TEST_SEED, else fresh. Tests show it when they fail.
inline std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    if (const char* text = std::getenv("JITGEMM_TEST_SEED")) return std::uint64_t(std::strtoull(text, nullptr, 10));
    return std::uint64_t(std::random_device{}());
  }();
  return seed;
}

/// splitmix64: the same values on every platform.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  double uniform() { return double(next() >> 11) * 0x1p-53; }  ///< [0, 1)
  int between(int low, int high) { return low + int(next() % std::uint64_t(high - low + 1)); }
  int log_between(int low, int high) { return int(low * std::pow((high + 1.0) / low, uniform())); }
  template <typename Container>
  const auto& pick(const Container& values) {
    return values[next() % values.size()];
  }

 private:
  std::uint64_t state_;
};

}  // namespace jitgemm::test
