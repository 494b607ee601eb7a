#include <algorithm>
#include <cmath>

#include "activations.hpp"
#include "catch.hpp"
#include "core/activations.hpp"
#include "core/enumerators.hpp"

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
