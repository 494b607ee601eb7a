#pragma once

#include <span>
#include <string>
#include <string_view>

#include "jitgemm/types.hpp"

namespace jitgemm {

/// What there is to know of an activation.
struct ActivationInfo {
  Activation activation;
  std::string_view name;         // in texts
  std::string_view device_text;  // a function's body in a kernel: from x and slope, which are of type Accumulator
  double (*value)(double x, double slope);              // the same on the host
  double (*largest_slope)(double range, double slope);  // of its graph where |x| <= range: a Lipschitz bound
  bool takes_slope = false, takes_integers = false;
};

/// All of them, in the order of Activation.
std::span<const ActivationInfo> activations();

/// The row of an activation; for what is none, that of Activation::none.
const ActivationInfo& info_of(Activation activation);

/// "none or relu"
std::string names_of_activations_of_integers();

}  // namespace jitgemm
