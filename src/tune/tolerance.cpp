#include "tune/tolerance.hpp"

#include <algorithm>
#include <cmath>

#include "core/activations.hpp"
#include "core/element.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"

namespace jitgemm {
namespace {

/// The largest error of a sum of products, as a part of their absolute sum.
double accumulation(const Problem& p) {
  const double k = double(p.k);
  if (accumulator_of(p) == s32) return 0;
  if (accumulator_of(p) == f64) return 0x1p-53 * (4 + k);
  if (is_simt(p.a.type)) return 0x1p-24 * (4 + k);
  if (is_fp8(p.a.type) && p.accumulation == Accumulation::fast) return 0x1p-13 * (4 + k / 32);
  // Promoted, each sum of 128 products is as above, and f32 adds those up as it does what follows.
  const double within_a_step = is_fp8(p.a.type) ? 0x1p-13 * (4 + 128 / 32) : 0;
  // Tensor cores truncate each sum of 8 to 16 products, and f32 adds those up: so many roundings, all of one sign at
  // worst.
  return within_a_step + 0x1p-22 * (16 + k / 16);
}

/// Of the few operations that follow.
double scalar_rounding(const Problem& p) {
  const DataType compute = compute_type_of(p);
  return compute == s32 ? 0 : compute == f64 ? 0x1p-51 : 0x1p-22;
}

}  // namespace

bool ExpectedElement::accepts(double d) const {
  if (d == value || (std::isnan(d) && std::isnan(value))) return true;
  if (std::isinf(d)) return std::copysign(1, d) * value + tolerance >= overflow;
  return std::abs(d - value) <= tolerance;
}

ExpectedElement expected_element(const Problem& p, const ElementTerms& terms, double value) {
  if (compute_type_of(p) == s32) return {.value = value};
  const double largest = largest_finite(p.d.type);
  const auto saturated = [largest](double x) { return std::clamp(x, -largest, largest); };
  // Infinity and NaN leave nothing to round.
  if (std::isfinite(terms.error) && !(std::isfinite(value) && std::isfinite(terms.linear)))
    return {.value = is_fp8(p.d.type) ? saturated(value) : value};
  const ActivationInfo& activation = info_of(p.epilogue.activation);
  const double linear = std::abs(terms.linear);
  const double before = accumulation(p) * terms.products + scalar_rounding(p) * (terms.addends + linear) + terms.error;
  const double activated = std::abs(activation.value(terms.linear, p.epilogue.slope));
  const double largest_slope = activation.largest_slope(linear + before, p.epilogue.slope);
  // erf, tanh and exp round, too
  const double after =
      std::abs(terms.scale) * (largest_slope * before + 4 * scalar_rounding(p) * std::max(linear, activated));
  ExpectedElement expected{.value = value};
  expected.tolerance = after + unit_roundoff(p.d.type) * (std::abs(value) + after) + half_smallest_subnormal(p.d.type);
  if (is_fp8(p.d.type)) {
    expected.value = saturated(value);
    expected.tolerance = std::max(expected.value - saturated(value - expected.tolerance),
                                  saturated(value + expected.tolerance) - expected.value);
  } else {
    expected.overflow = largest;
  }
  return expected;
}

Agreement agreement(const Problem& p, double products) {
  return {2 * unit_roundoff(p.d.type) + scalar_rounding(p),
          2 * (accumulation(p) * products + half_smallest_subnormal(p.d.type))};
}

}  // namespace jitgemm
