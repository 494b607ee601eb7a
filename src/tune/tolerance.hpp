#pragma once

#include <cmath>

#include "jitgemm/problem.hpp"

namespace jitgemm {

/// What an element of D is computed from, as far as it decides how right a D can be.
struct ElementTerms {
  double linear = 0;    ///< before the activation
  double addends = 0;   ///< |beta c| + |bias|
  double products = 0;  ///< the sum of |alpha a b|
  double scale = 1;     ///< scale_d
  double error = 0;     ///< of linear, beside that of the sums and roundings above
};

/// What an element of D may be.
struct ExpectedElement {
  double value = 0;
  double tolerance = 0;        ///< rounding of D, accumulation in any order
  double overflow = HUGE_VAL;  ///< what may be as large as that may be infinity, of the same sign

  /// NaN is like NaN alone.
  bool accepts(double d) const;
};
/// `value` is not yet rounded to D's type.
ExpectedElement expected_element(const Problem& problem, const ElementTerms& terms, double value);

/// Two right results of an element differ by absolute + relative * (the smaller) at most, about: `products` are those
/// of some elements.
struct Agreement {
  double relative, absolute;
};
Agreement agreement(const Problem& problem, double products);

}  // namespace jitgemm
