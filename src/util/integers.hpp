#pragma once

#include <cstdint>

namespace jitgemm {

/// x / y for x >= 0 and y > 0. Most values are small, and dividing 64 bits takes many processors three times as long
/// as 32.
constexpr std::int64_t quotient(std::int64_t x, std::int64_t y) {
  return (x | y) >> 32 == 0 ? std::int64_t(std::uint32_t(x) / std::uint32_t(y)) : x / y;
}
constexpr std::int64_t ceil_div(std::int64_t x, std::int64_t y) { return quotient(x + y - 1, y); }
constexpr std::int64_t round_up(std::int64_t x, std::int64_t y) { return ceil_div(x, y) * y; }

}  // namespace jitgemm
