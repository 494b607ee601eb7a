#include "core/activations.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "util/alternatives.hpp"

namespace jitgemm {
namespace {

using Bound = double (*)(double range, double slope);
constexpr Bound one = [](double, double) { return 1.0; };
constexpr Bound of_a_wave = [](double, double) { return 1.13; };  // near |x| = 1.5 (gelu) and 2.4 (silu)

// A text may call ptx::add, mul, fma, erf and what templates/activation.cuh has. A comparison with NaN is false, so
// that NaN passes through.
constexpr std::array table{
    ActivationInfo{.activation = Activation::none,
                   .name = "none",
                   .device_text = "return x;",
                   .value = [](double x, double) { return x; },
                   .largest_slope = one,
                   .takes_integers = true},
    ActivationInfo{.activation = Activation::relu,
                   .name = "relu",
                   .device_text = "return x < ElementCompute(0) ? ElementCompute(0) : x;",
                   .value = [](double x, double) { return x < 0 ? 0 : x; },
                   .largest_slope = one,
                   .takes_integers = true},
    ActivationInfo{.activation = Activation::leaky_relu,
                   .name = "leaky_relu",
                   .device_text = "return x < ElementCompute(0) ? ptx::mul(slope, x) : x;",
                   .value = [](double x, double slope) { return x < 0 ? slope * x : x; },
                   .largest_slope = [](double, double slope) { return std::max(1.0, std::abs(slope)); },
                   .takes_slope = true},
    ActivationInfo{.activation = Activation::gelu_erf,  // (1 + erf(x / sqrt(2))) x / 2
                   .name = "gelu_erf",
                   .device_text = R"(const ElementCompute half = ptx::mul(ElementCompute(0.5), x);
  return ptx::fma(half, ptx::erf(ptx::mul(x, ElementCompute(0.70710678118654752))), half);)",
                   .value = [](double x, double) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); },
                   .largest_slope = of_a_wave},
    ActivationInfo{
        .activation = Activation::gelu_tanh,  // (1 + tanh(y)) / 2 is 1 / (1 + exp(-2 y))
        .name = "gelu_tanh",
        .device_text = R"(constexpr double SCALE = -2 * LOG2_E * 0.79788456080286536;
  return ptx::mul(x, sigmoid(ptx::mul(x, ptx::fma(ElementCompute(SCALE * 0.044715), ptx::mul(x, x), ElementCompute(SCALE)))));)",
        .value = [](double x,
                    double) { return x / 2 * (1 + std::tanh(0.79788456080286536 * (x + 0.044715 * x * x * x))); },
        .largest_slope = of_a_wave},
    ActivationInfo{.activation = Activation::silu,
                   .name = "silu",
                   .device_text = "return ptx::mul(x, sigmoid(ptx::mul(ElementCompute(-LOG2_E), x)));",
                   .value = [](double x, double) { return x / (1 + std::exp(-x)); },
                   .largest_slope = of_a_wave},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < table.size(); ++i)
    if (table[i].activation != Activation(i)) return false;
  return true;
}
static_assert(in_order());

}  // namespace

std::span<const ActivationInfo> activations() { return table; }

const ActivationInfo& info_of(Activation activation) {
  return std::size_t(activation) < table.size() ? table[std::size_t(activation)] : table.front();
}

std::string names_of_activations_of_integers() {
  std::vector<std::string_view> names;
  for (const ActivationInfo& info : table)
    if (info.takes_integers) names.push_back(info.name);
  return alternatives(names);
}

}  // namespace jitgemm
