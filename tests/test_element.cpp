#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "catch.hpp"
#include "core/data_types.hpp"
#include "core/element.hpp"
#include "random.hpp"
#include "reference.hpp"

using namespace jitgemm;
using jitgemm::test::Random;
using jitgemm::test::test_seed;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double of(std::uint64_t bits, DataType type) { return load_element(&bits, 0, type); }

std::uint64_t to(double value, DataType type) {
  std::uint64_t bits = 0;
  store_element(value, &bits, 0, type);
  return bits;
}

}  // namespace

TEST_CASE("Elements have the values that their formats say", "[element]") {
  CHECK(of(0x3c00, f16) == 1);
  CHECK(of(0x83ff, f16) == -1023 * 0x1p-24);
  CHECK(of(0xfc00, f16) == -infinity);
  CHECK(std::isnan(of(0x7e00, f16)));
  CHECK(of(0xc0a0, bf16) == -5);
  CHECK(of(0x7f80, bf16) == infinity);
  CHECK(of(0x7e, e4m3) == 448);
  CHECK(of(0x81, e4m3) == -0x1p-9);
  CHECK(std::isnan(of(0xff, e4m3)));
  CHECK(of(0x7b, e5m2) == 57344);
  CHECK(of(0x7c, e5m2) == infinity);
  CHECK(std::isnan(of(0x7d, e5m2)));
  CHECK(of(0x80, s8) == -128);
  CHECK(of(0xffffffff, s32) == -1);
  CHECK(of(0x40490fdb, tf32) == double(3.14159274f));
}

TEST_CASE("What is too large becomes infinity, or the nearest end of the range", "[element]") {
  CHECK(to(65519, f16) == 0x7bff);
  CHECK(to(-65520, f16) == 0xfc00);
  CHECK(to(1e6, e4m3) == 0x7e);
  CHECK(to(-infinity, e5m2) == 0xfb);
  CHECK(to(1000, s8) == 127);
  CHECK(to(-1e300, s32) == 0x80000000);
  CHECK(to(std::nan(""), e4m3) == 0x7f);
}

TEST_CASE("Every pattern of up to 16 bits survives, and random values round as the tests' own conversion",
          "[element]") {
  Random random(test_seed());
  for (const DataTypeInfo& info : data_types()) {
    if (info.bits > 16) continue;
    const DataType type = info.type;
    INFO(to_string(type) << ", JITGEMM_TEST_SEED=" << test_seed());
    for (std::uint64_t bits = 0; bits < std::uint64_t(1) << 8 * size_of(type); ++bits) {
      const double value = of(bits, type);
      if (std::isnan(value)) continue;
      if (type == e5m2 && std::isinf(value)) continue;  // saturates
      REQUIRE(to(value, type) == bits);
      REQUIRE(test::load(&bits, 0, type) == value);
    }
    for (int i = 0; i < 20'000; ++i) {
      const double value = std::ldexp(random.uniform() - 0.5, random.between(-30, 20));
      std::uint64_t expected = 0;
      test::store(value, &expected, 0, type);
      REQUIRE(to(value, type) == expected);
    }
  }
}
