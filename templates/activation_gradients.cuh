// The gradients of activations, of one value: for epilogues of the caller's own, a kernel's activation has none.
//
// All are 1 - g(-x) where x is above 0, so that they are computed of -|x|: there nothing overflows, and but for f64's
// dgelu_erf what becomes small keeps places of its own. On [-14, 14] the emulator's of f32 are within 2^-21.6, 2^-22.9
// and 2^-23.1 of what they stand for, a GPU's within 2^-20, those of f64 within 2^-49. NaN stays NaN.
#pragma once
#include "activation.cuh"
#include "ide.cuh"
#include "ptx/math.cuh"

namespace jitgemm::device {

/// -|x|, and `least` where that is less; NaN stays NaN.
__device__ __forceinline__ float side_below(float x, float least) { return ptx::max_or_nan(-ptx::abs(x), least); }
__device__ __forceinline__ double side_below(double x, double least) {
  const double below = x < 0 ? x : -x;
  return below < least ? least : below;
}
/// Of g(-|x|) g(x).
template <typename T>
__device__ __forceinline__ T of_its_side(T x, T below) {
  return x < T(0) ? below : ptx::add(T(1), -below);
}

/// That of gelu_erf: Phi(x) + x phi(x), Phi and phi the normal distribution and its density.
__device__ __forceinline__ float dgelu_erf(float x) {
  constexpr float LOG2_OF_DENSITY = -1.3257480647361593f;  // at 0
  const float y = side_below(x, -13.75f);                  // where upper_tail() ends, with 2^-111
  const float density = ptx::ex2(ptx::fma(ptx::mul(y, y), float(-LOG2_E / 2), LOG2_OF_DENSITY));
  return of_its_side(x, ptx::fma(y, density, upper_tail(-y)));
}
__device__ __forceinline__ double dgelu_erf(double x) {
  const double y = side_below(x, -40.0);
  const double density = ptx::mul(0.3989422804014327, ptx::exp2(ptx::mul(-LOG2_E / 2, ptx::mul(y, y))));
  return of_its_side(x, ptx::fma(y, density, ptx::fma(0.5, ptx::erf(ptx::mul(y, 0.70710678118654752)), 0.5)));
}

/// Of x s, s = 1 / (1 + 2^-power), at -|x|: s (1 + slope (1 - s)), of slope = x times log(2) power's own gradient.
__device__ __forceinline__ float gate_gradient(float power, float slope) {
  const float e = ptx::ex2(power), rest = ptx::rcp(ptx::add(1.0f, e));  // 1 - s, and s = e rest, which keeps its places
  return ptx::mul(ptx::mul(e, rest), ptx::fma(slope, rest, 1.0f));
}
__device__ __forceinline__ double gate_gradient(double power, double slope) {
  const double e = ptx::exp2(power), rest = 1.0 / ptx::add(1.0, e);
  return ptx::mul(ptx::mul(e, rest), ptx::fma(slope, rest, 1.0));
}

/// That of gelu_tanh, whose power of 2 is polynomial.
template <typename T>
__device__ __forceinline__ T dgelu_tanh(T x) {
  constexpr double SCALE = 2 * 0.79788456080286536, CUBIC = 0.044715;
  const T y = side_below(x, T(-24)), square = ptx::mul(y, y);  // where nothing is left
  const T power = ptx::mul(y, ptx::fma(T(LOG2_E * SCALE * CUBIC), square, T(LOG2_E * SCALE)));
  return of_its_side(x, gate_gradient(power, ptx::mul(y, ptx::fma(T(3 * SCALE * CUBIC), square, T(SCALE)))));
}

/// That of silu.
template <typename T>
__device__ __forceinline__ T dsilu(T x) {
  const T y = side_below(x, T(-800));
  return of_its_side(x, gate_gradient(ptx::mul(T(LOG2_E), y), y));
}

}  // namespace jitgemm::device
