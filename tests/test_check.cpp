// What the check against a reference takes for right where results are infinite or NaN, and what it remembers.
#include <cmath>
#include <limits>

#include "catch.hpp"
#include "core/problem.hpp"
#include "measure/check.hpp"
#include "tune/tolerance.hpp"

using namespace jitgemm;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("Infinity and NaN are right where the reference has or rounds to them, and nowhere else", "[check]") {
  const NormalProblem p = normalise({.m = 1, .n = 1, .k = 64});  // D is f16
  const auto is_right = [&p](double d, double value) {
    return expected_element(p, {.linear = value, .products = std::abs(value)}, value).accepts(d);
  };
  CHECK(is_right(infinity, 70000));
  for (const double wrong : {65504.0, 5.0, -infinity, not_a_number}) CHECK_FALSE(is_right(wrong, 70000));
  for (const double right : {65504.0, infinity}) CHECK(is_right(right, 65510));
  CHECK_FALSE(is_right(infinity, 60000));
  for (const double value : {infinity, -infinity, not_a_number}) {
    CHECK(is_right(value, value));
    for (const double other : {1.0, 65504.0, infinity, -infinity, not_a_number})
      CHECK(is_right(other, value) == (other == value || (std::isnan(other) && std::isnan(value))));
    CHECK_FALSE(is_right(value, 1));
  }
}

TEST_CASE("Infinity and NaN in both are counted, and off by nothing", "[check]") {
  for (const double value : {infinity, not_a_number}) {
    cli::Check check;
    check.compare({}, value, {.value = value});
    CHECK(check.passed());
    CHECK(check.error == 0);
    CHECK(check.nans == (std::isnan(value) ? 1 : 0));
  }
}

TEST_CASE("A wrong element is not forgotten for right ones behind it", "[check]") {
  for (const double tolerance : {1.0, 0.0, not_a_number}) {
    cli::Check check;
    check.compare({.column = 3}, 5, {.value = 0, .tolerance = tolerance});
    check.compare({.column = 4}, 1, {.value = 1, .tolerance = 1});
    CHECK_FALSE(check.passed());
    CHECK(check.worst.column == 3);
    CHECK(check.got == 5);
  }
}
