#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "jitgemm/types.hpp"

// What tests expect of each activation, written apart from src/core/activations.cpp.
namespace jitgemm::test {

/// Instructions that round.
struct Operations {
  int fma = 0, mul = 0, add = 0;

  int count() const { return fma + mul + add; }
  Operations operator*(int times) const { return {fma * times, mul * times, add * times}; }
  Operations operator+(const Operations& x) const { return {fma + x.fma, mul + x.mul, add + x.add}; }
  bool operator==(const Operations&) const = default;
};

struct ExpectedActivation {
  Activation activation;
  double (*value)(double x, double slope);
  double (*largest_slope)(double range, double slope);  // of its graph where |x| <= range
  bool exact;                            // the device rounds once at most, so that all have the bits of `value`
  std::optional<Operations> operations;  // of a kernel's text, by element; nullopt where a function has its own
  bool of_integers = false;
};

inline constexpr std::array expected_activations{
    ExpectedActivation{.activation = Activation::none,
                       .value = [](double x, double) { return x; },
                       .largest_slope = [](double, double) { return 1.0; },
                       .exact = true,
                       .operations = Operations{},
                       .of_integers = true},
    ExpectedActivation{.activation = Activation::relu,
                       .value = [](double x, double) { return x < 0 ? 0 : x; },
                       .largest_slope = [](double, double) { return 1.0; },
                       .exact = true,
                       .operations = Operations{},
                       .of_integers = true},
    ExpectedActivation{.activation = Activation::leaky_relu,
                       .value = [](double x, double slope) { return x < 0 ? slope * x : x; },
                       .largest_slope = [](double, double slope) { return std::max(1.0, std::abs(slope)); },
                       .exact = true,
                       .operations = Operations{0, 1, 0}},
    ExpectedActivation{.activation = Activation::gelu_erf,
                       .value = [](double x, double) { return 0.5 * x * (1 + std::erf(x * 0.70710678118654752)); },
                       .largest_slope = [](double, double) { return 1.13; },
                       .exact = false,
                       .operations = Operations{7, 0, 0}},
    ExpectedActivation{
        .activation = Activation::gelu_tanh,
        .value = [](double x,
                    double) { return 0.5 * x * (1 + std::tanh(0.79788456080286536 * (x + 0.044715 * x * x * x))); },
        .largest_slope = [](double, double) { return 1.13; },
        .exact = false,
        .operations = Operations{1, 3, 1}},
    ExpectedActivation{.activation = Activation::silu,
                       .value = [](double x, double) { return x / (1 + std::exp(-x)); },
                       .largest_slope = [](double, double) { return 1.1; },
                       .exact = false,
                       .operations = Operations{0, 2, 1}},
};

inline const ExpectedActivation& expected_of(Activation activation) {
  return expected_activations.at(std::size_t(activation));
}

}  // namespace jitgemm::test
