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

// A text may call ptx::add, mul, fma and what templates/activation.cuh has. A comparison with NaN is false, so that NaN
// passes through.
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
    ActivationInfo{.activation = Activation::gelu_erf,
                   .name = "gelu_erf",
                   .device_text = "return gelu_erf(x);",
                   .value =
                       [](double x, double) {
                         const double bounded = std::max(x, -40.0);  // of -infinity the limit, 0
                         return bounded / 2 * (1 + std::erf(bounded / std::sqrt(2.0)));
                       },
                   .largest_slope = of_a_wave},
    ActivationInfo{
        .activation = Activation::gelu_tanh,
        .name = "gelu_tanh",
        .device_text = "return gelu_tanh(x);",
        .value = [](double x,
                    double) { return x / 2 * (1 + std::tanh(0.79788456080286536 * (x + 0.044715 * x * x * x))); },
        .largest_slope = of_a_wave},
    ActivationInfo{.activation = Activation::silu,
                   .name = "silu",
                   .device_text = "return silu(x);",
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
