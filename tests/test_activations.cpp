#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "activations.hpp"
#include "catch.hpp"
#include "core/activations.hpp"
#include "core/enumerators.hpp"
#include "jitgemm/jitgemm.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

TEST_CASE("Every activation has a row, a name of its own and what tests expect of it", "[activations]") {
  REQUIRE(activations().size() == expected_activations.size());
  REQUIRE(enumerators<Activation>().size() == expected_activations.size());
  for (std::size_t i = 0; i < expected_activations.size(); ++i) {
    const auto activation = Activation(i);
    CAPTURE(i);
    CHECK(info_of(activation).activation == activation);
    CHECK(expected_of(activation).activation == activation);
    CHECK(parse_activation(to_string(activation)) == activation);
    CHECK(to_string(activation) == info_of(activation).name);
    CHECK(info_of(activation).device_text.ends_with(";"));
    CHECK(info_of(activation).takes_integers == expected_of(activation).of_integers);
    CHECK((expected_of(activation).operations || !expected_of(activation).exact));
  }
  CHECK_FALSE(is_known(Activation(expected_activations.size())));
  CHECK(info_of(Activation(expected_activations.size())).activation == Activation::none);
}

TEST_CASE("The host's activations are those that tests expect, and no steeper than they say", "[activations]") {
  constexpr double step = 0x1p-10;
  for (const ExpectedActivation& expected : expected_activations) {
    const ActivationInfo& info = info_of(expected.activation);
    for (const double slope : {0.01, -3.0}) {
      double steepest = 0;
      for (double x = -20; x <= 20; x += step) {
        const double y = info.value(x, slope);
        if (std::abs(y - expected.value(x, slope)) > 0x1p-50 * (std::abs(x) + std::abs(y)))
          FAIL(info.name << "(" << x << ") is " << y << ", expected " << expected.value(x, slope));
        steepest = std::max(steepest, std::abs(info.value(x + step, slope) - y) / step);
      }
      CAPTURE(info.name, slope, steepest);
      for (const double bound : {info.largest_slope(20 + step, slope), expected.largest_slope(20 + step, slope)}) {
        CHECK(steepest <= bound * (1 + 1e-9));
        CHECK(steepest >= 0.95 * bound);
      }
    }
    CHECK(std::isnan(info.value(NAN, 1)));
  }
}

TEST_CASE("gelu_erf in f32 is as near as templates/README.md says, and ends at 0", "[activations][emulator]") {
  const TemporaryDirectory cache;
  ContextOptions options;
  options.device = Device::emulator;
  options.tuning = Tuning::off;
  options.cache_dir = cache.path().string();
  Context context(options);
  std::vector<float> x, d;
  for (int i = -20000; i <= 20000; ++i) x.push_back(float(i) / 1024);
  for (int i = -140; i <= 120; i += 4)
    for (const float sign : {1.f, -1.f}) x.push_back(std::ldexp(sign * 1.37f, i));
  constexpr float infinity = std::numeric_limits<float>::infinity();
  x.insert(x.end(), {infinity, -infinity, NAN});
  d.resize(x.size());
  Problem problem{.m = std::int64_t(x.size()), .n = 1, .k = 1, .a = {f32}, .b = {f32}, .d = {f32}};
  problem.epilogue.activation = Activation::gelu_erf;
  const float one = 1;
  context.gemm(problem, {.a = x.data(), .b = &one, .d = d.data()});
  double worst = 0, worst_of_itself = 0;
  for (std::size_t i = 0; i < x.size() - 3; ++i) {
    const double from = x[i], expected = 0.5 * from * std::erfc(-from * 0.70710678118654752),
                 error = std::abs(d[i] - expected);
    if (std::abs(from) > 0x1p-100) worst = std::max(worst, error / std::abs(from));
    if (from >= -5.6 && std::abs(expected) > 0x1p-100)
      worst_of_itself = std::max(worst_of_itself, error / std::abs(expected));
  }
  CHECK(worst <= std::exp2(-21.5));
  CHECK(worst_of_itself <= 0x1p-11);
  CHECK(worst_of_itself > 0x1p-13);  // else it is another function, and the comment wants to know
  CHECK(d[x.size() - 3] == infinity);
  CHECK(std::abs(d[x.size() - 2]) < 1e-30f);
  CHECK(std::isnan(d[x.size() - 1]));
}
