#pragma once

#include "jitgemm/types.hpp"
#include "product.hpp"

namespace jitgemm::python {

struct Scalings {
  Scaling a = Scaling::value, b = Scaling::value;
};
/// What scale_a and scale_b are, by their shapes beside those of a and b; null are those that are not arrays. Scales
/// lie as their operand does: with one for 128 of k scale_a is (M, ceil(K / 128)), and scale_b, beside a b of (K, N),
/// (ceil(K / 128), N). Kernels read them where they are, so strides must be those of Scaling. Throws TypeError for what
/// is no scale of such an operand, ValueError where only the strides or the other operand's scales are wrong.
Scalings scalings_of(const View* scale_a, const View* scale_b, const View& a, const View& b);

}  // namespace jitgemm::python
