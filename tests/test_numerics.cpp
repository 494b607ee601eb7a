#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/problem.hpp"
#include "random.hpp"
#include "reference.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

enum class Inputs { normal, positive, cancelling };

/// Packed host operands of a row-major problem.
struct Host {
  Problem problem;
  std::vector<char> a, b, c, bias, d;

  Host(const Problem& p, Inputs inputs, Random& random) : problem(normalise(p)) {
    const auto fill = [&random, inputs](std::vector<char>& array, std::int64_t count, DataType type, bool cancels) {
      array.resize(std::size_t(count) * size_of(type));
      double previous = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        double x = 0;
        for (int j = 0; j < 12; ++j) x += random.uniform();
        x -= 6;  // about N(0, 1)
        if (inputs != Inputs::normal) x = std::abs(x) + 0.5;
        if (cancels && i % 2 == 1) x = -previous;
        previous = x;
        store(x, array.data(), i, type);
      }
    };
    fill(a, p.m * p.k, p.a.type, inputs == Inputs::cancelling);
    fill(b, p.k * p.n, p.b.type, false);
    fill(c, p.m * p.n, p.d.type, false);
    fill(bias, p.n, p.d.type, false);
    d.resize(c.size());
  }

  Operands operands() { return {.a = a.data(), .b = b.data(), .c = c.data(), .d = d.data(), .bias = bias.data()}; }
  Reference reference(MainLoop main_loop) { return test::reference(problem, operands(), main_loop); }
  std::string violation(MainLoop main_loop) { return test::violation(reference(main_loop), problem, d.data()); }

  void store_reference() {
    const Reference exact = reference(MainLoop::sm80);
    for (std::size_t i = 0; i < exact.d.size(); ++i) store(exact.d[i], d.data(), std::int64_t(i), problem.d.type);
  }

  /// D from the reference without the products of [k_begin, k_end).
  void store_without(std::int64_t k_begin, std::int64_t k_end) {
    const std::vector<char> whole = a;
    for (std::int64_t row = 0; row < problem.m; ++row) {
      for (std::int64_t k = k_begin; k < k_end; ++k) store(0, a.data(), row * problem.a.ld + k, problem.a.type);
    }
    store_reference();
    a = whole;
  }
};

/// A tensor core by the published models: `terms` products and the accumulator are aligned to the largest of them,
/// `fraction_bits` are kept, the rest is cut off; so is what f32 cannot hold of the sum.
struct TensorCore {
  int terms, fraction_bits;

  float add(float accumulator, const double* products, int count) const {
    int exponent = accumulator == 0 ? -1000 : std::ilogb(accumulator);
    for (int i = 0; i < count; ++i) {
      if (products[i] != 0) exponent = std::max(exponent, std::ilogb(products[i]));
    }
    const auto cut = [](double x, int to_exponent) {
      return std::ldexp(std::trunc(std::ldexp(x, -to_exponent)), to_exponent);
    };
    double sum = cut(accumulator, exponent - fraction_bits);
    for (int i = 0; i < count; ++i) sum += cut(products[i], exponent - fraction_bits);
    return sum == 0 ? 0.0f : float(cut(sum, std::ilogb(sum) - 23));
  }

  /// A * B with k cut into `splits` parts, whose sums are added in order.
  void multiply(Host& host, int splits) const {
    const Problem& p = host.problem;
    std::vector<double> products(std::size_t(terms), 0.0);
    for (std::int64_t row = 0; row < p.m; ++row) {
      for (std::int64_t column = 0; column < p.n; ++column) {
        float total = 0;
        for (int split = 0; split < splits; ++split) {
          const std::int64_t begin = p.k * split / splits / 16 * 16,
                             end = split + 1 == splits ? p.k : p.k * (split + 1) / splits / 16 * 16;
          float accumulator = 0;
          for (std::int64_t k = begin; k < end; k += terms) {
            const int count = int(std::min<std::int64_t>(terms, end - k));
            for (int i = 0; i < count; ++i) {
              products[std::size_t(i)] = load(host.a.data(), row * p.a.ld + k + i, p.a.type) *
                                         load(host.b.data(), (k + i) * p.b.ld + column, p.b.type);
            }
            accumulator = add(accumulator, products.data(), count);
          }
          total += accumulator;
        }
        float x = total * float(p.alpha);
        if (reads_c(p)) x += float(p.beta) * float(load(host.c.data(), row * p.c.ld + column, p.d.type));
        if (p.epilogue.bias != Bias::none) x += float(load(host.bias.data(), column, p.d.type));
        store(x, host.d.data(), row * p.d.ld + column, p.d.type);
      }
    }
  }
};

}  // namespace

TEST_CASE("Every 16-bit pattern survives decoding and encoding", "[numerics]") {
  for (DataType type : {f16, bf16}) {
    for (int bits = 0; bits < 0x10000; ++bits) {
      std::uint16_t pattern = std::uint16_t(bits), again;
      const double value = load(&pattern, 0, type);
      store(value, &again, 0, type);
      if (std::isnan(value) ? std::isnan(load(&again, 0, type)) : pattern == again) continue;
      FAIL(to_string(type) << " " << bits << " comes back as " << again);
    }
  }
}

TEST_CASE("Rounding is to nearest even, with subnormals and overflow", "[numerics]") {
  const auto round_trip = [](double value, DataType type) {
    std::uint16_t bits;
    store(value, &bits, 0, type);
    return load(&bits, 0, type);
  };
  CHECK(round_trip(2049, f16) == 2048);
  CHECK(round_trip(2051, f16) == 2052);
  CHECK(round_trip(2049.0001, f16) == 2050);
  CHECK(round_trip(65519.9, f16) == 65504);
  CHECK(round_trip(65520, f16) == infinity);
  CHECK(round_trip(-1e300, f16) == -infinity);
  CHECK(round_trip(0x1p-25, f16) == 0);
  CHECK(round_trip(0x1.8p-25, f16) == 0x1p-24);
  CHECK(round_trip(0x1.ffep-15, f16) == 0x1p-14);  // up into the normal numbers
  CHECK(round_trip(257, bf16) == 256);
  CHECK(round_trip(259, bf16) == 260);
  CHECK(round_trip(0x1.ffp127, bf16) == infinity);
  CHECK(std::isnan(round_trip(not_a_number, f16)));
}

TEST_CASE("A result without one of its k-blocks is rejected", "[numerics]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  for (MainLoop main_loop : {MainLoop::sm80, MainLoop::sm90}) {
    for (DataType type : {f16, bf16}) {
      for (DataType type_d : {f16, bf16, f32}) {
        for (std::int64_t k : {33, 256, 1000, 6016, 32000}) {
          const int block_k = main_loop == MainLoop::sm90 ? 64 : 32;
          Host host({.m = 16,
                     .n = 24,
                     .k = k,
                     .a = {type},
                     .b = {type},
                     .d = {type_d},
                     .alpha = 0.5,
                     .beta = -2,
                     .epilogue = {.bias = Bias::along_n}},
                    Inputs::normal, random);
          host.store_reference();
          CAPTURE(to_string(main_loop), to_string(host.problem));
          REQUIRE(host.violation(main_loop) == "");
          const std::int64_t last = (k - 1) / block_k * block_k;
          for (std::int64_t step : {std::int64_t(0), last / 2 / block_k * block_k, last}) {
            host.store_without(step, std::min(k, step + block_k));
            CAPTURE(step);
            REQUIRE(host.violation(main_loop) != "");
          }
        }
      }
    }
  }
}

TEST_CASE("What the tensor cores compute is accepted", "[numerics]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  for (Inputs inputs : {Inputs::normal, Inputs::positive, Inputs::cancelling}) {
    for (DataType type_d : {f16, bf16, f32}) {
      for (std::int64_t k : {1, 100, 4096, 20000}) {
        for (int splits : {1, 7}) {
          Host host({.m = 4,
                     .n = 8,
                     .k = k,
                     .a = {bf16},
                     .b = {bf16},
                     .d = {type_d},
                     .alpha = -0.375,
                     .beta = 3,
                     .epilogue = {.bias = Bias::along_n}},
                    inputs, random);
          CAPTURE(int(inputs), to_string(host.problem), splits);
          TensorCore{8, 24}.multiply(host, splits);
          CHECK(host.violation(MainLoop::sm80) == "");
          TensorCore{16, 25}.multiply(host, splits);
          CHECK(host.violation(MainLoop::sm90) == "");
        }
      }
    }
  }
}

TEST_CASE("What promoted 8-bit products lose does not grow with k", "[numerics]") {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  const TensorCore wgmma_fp8{32, 13};
  for (DataType type : {e4m3, e5m2})
    for (Inputs inputs : {Inputs::normal, Inputs::positive, Inputs::cancelling})
      for (int k_blocks : {1, 3, 32, 200}) {
        Host host({.m = 4, .n = 8, .k = 128 * k_blocks, .a = {type}, .b = {type}, .d = {f32}}, inputs, random);
        CAPTURE(int(inputs), to_string(host.problem));
        wgmma_fp8.multiply(host, 1);
        CHECK(host.violation(MainLoop::sm90) == "");
        host.problem.accumulation = Accumulation::promoted;
        if (inputs == Inputs::positive && k_blocks >= 32) CHECK(host.violation(MainLoop::sm90) != "");
        wgmma_fp8.multiply(host, k_blocks);
        CHECK(host.violation(MainLoop::sm90) == "");
      }
}

TEST_CASE("One wrong element is rejected, whatever is wrong with it", "[numerics]") {
  Random random(7);
  Host host({.m = 5, .n = 7, .k = 40}, Inputs::normal, random);
  const auto with = [&host](double value) {
    host.store_reference();
    store(value, host.d.data(), 17, f16);
    return host.violation(MainLoop::sm80);
  };
  const double right = host.reference(MainLoop::sm80).d[17];
  CHECK(with(right) == "");
  CHECK(with(right + 0.1) != "");
  CHECK(with(-right) != "");
  CHECK(with(not_a_number) != "");
  CHECK(with(infinity) != "");
  CHECK_THAT(with(not_a_number), Catch::Matchers::ContainsSubstring("D(2, 3) is nan") &&
                                     Catch::Matchers::ContainsSubstring("1 of 35 elements"));
}

TEST_CASE("Overflow and subnormals of D's type follow its rounding", "[numerics]") {
  const auto accepts = [](double value, double expected, double bound) {
    return within(value, {expected, bound}, f16);
  };
  CHECK(accepts(infinity, 70000, 1));
  CHECK_FALSE(accepts(65504, 70000, 1));
  CHECK(accepts(65504, 65519, 32));
  CHECK(accepts(infinity, 65519, 32));
  CHECK_FALSE(accepts(-infinity, 65519, 32));
  CHECK_FALSE(accepts(infinity, 60000, 32));

  Random random(8);
  Host host({.m = 1, .n = 1, .k = 1, .alpha = 0x1p-20}, Inputs::positive, random);
  store(0x1p-4, host.a.data(), 0, f16);
  store(0x1.4p-1, host.b.data(), 0, f16);
  store(0x1p-24, host.d.data(), 0, f16);  // of 0x1.4p-25, one half and an eighth of the smallest subnormal
  CHECK(host.violation(MainLoop::sm80) == "");
  store(0x1p-23, host.d.data(), 0, f16);
  CHECK(host.violation(MainLoop::sm80) != "");
}

TEST_CASE("NaN and infinity in the inputs come out as they must", "[numerics]") {
  const auto expected = [](double a0, double a1, Activation activation) {
    Random random(9);
    Host host({.m = 1, .n = 1, .k = 2, .epilogue = {.activation = activation}}, Inputs::positive, random);
    store(a0, host.a.data(), 0, f16);
    store(a1, host.a.data(), 1, f16);
    const Reference result = host.reference(MainLoop::sm80);
    CHECK((result.bound[0] == 0 || std::isfinite(result.bound[0])));
    return result.d[0];
  };
  CHECK(std::isnan(expected(not_a_number, 1, Activation::none)));
  CHECK(std::isnan(expected(not_a_number, 1, Activation::relu)));
  CHECK(std::isnan(expected(not_a_number, 1, Activation::leaky_relu)));
  CHECK(std::isnan(expected(infinity, -infinity, Activation::relu)));
  CHECK(expected(infinity, 1, Activation::relu) == infinity);
  CHECK(expected(-infinity, 1, Activation::none) == -infinity);
  CHECK(expected(-infinity, 1, Activation::relu) == 0);
  CHECK(expected(-infinity, 1, Activation::leaky_relu) == -infinity);
}

TEST_CASE("The whole reference and its single elements agree", "[numerics]") {
  Random random(10);
  Host host({.m = 9, .n = 70, .k = 33, .beta = 1, .epilogue = {.bias = Bias::along_n, .activation = Activation::relu}},
            Inputs::normal, random);
  const Reference whole = host.reference(MainLoop::sm90);
  for (std::int64_t row : {0, 4, 8}) {
    for (std::int64_t column : {0, 63, 64, 69}) {
      const ReferenceElement one = reference_element(host.problem, host.operands(), MainLoop::sm90, 0, row, column);
      CHECK(one.d == whole.d[std::size_t(row * 70 + column)]);
      CHECK(one.bound == whole.bound[std::size_t(row * 70 + column)]);
    }
  }
}
