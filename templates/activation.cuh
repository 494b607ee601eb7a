// The activations that need more than an instruction, of one value. What a kernel's activation is, is its own text, of
// src/core/activations.cpp; epilogues of the caller's own may call these, too.
#pragma once
#include "ide.cuh"
#include "ptx/math.cuh"

namespace jitgemm::device {

[[maybe_unused]] constexpr double LOG2_E = 1.4426950408889634;

/// 1 / (1 + 2^x)
__device__ __forceinline__ float sigmoid(float x) { return ptx::rcp(ptx::add(1.0f, ptx::ex2(x))); }
__device__ __forceinline__ double sigmoid(double x) { return 1.0 / ptx::add(1.0, ptx::exp2(x)); }

/// What a normal distribution has above t, which is between 0 and 14.
///
/// A third of the instructions of erff give it as 2^q(t), q a polynomial. It was fitted to the logarithm on [0, 5.6] so
/// that the tail is within 2^-22 of itself and, where it is small, within 2^-12 of itself. Beyond, where the tail is
/// below 2^-26, q goes on falling up to 14.
__device__ __forceinline__ float upper_tail(float t) {
  float q = 3.114904757239856e-05f;
  q = ptx::fma(q, t, -0.000740662042517215f);
  q = ptx::fma(q, t, 0.007951370440423489f);
  q = ptx::fma(q, t, -0.05316847190260887f);
  q = ptx::fma(q, t, -0.45897242426872253f);
  q = ptx::fma(q, t, -1.1511348485946655f);
  return ptx::ex2(ptx::fma(q, t, -0.9999994039535522f));
}

/// (1 + erf(x / sqrt(2))) x / 2
///
/// is max(x, 0) - |x| P(|x|), P the upper tail: nothing is left over of a difference where P is small, and f16 and bf16
/// have the result to the last bit or two.
__device__ __forceinline__ float gelu_erf(float x) {
  const float size = ptx::abs(x), t = size < 13.75f ? size : 13.75f;  // infinity has no P
  return ptx::fma(-t, upper_tail(t), ptx::max_or_nan(x, 0.0f));
}
__device__ __forceinline__ double gelu_erf(double x) {
  const double half = ptx::mul(0.5, x);
  return ptx::fma(half, ptx::erf(ptx::mul(x, 0.70710678118654752)), half);
}

/// (1 + tanh(y)) x / 2, of y = sqrt(2 / pi) (x + 0.044715 x^3): that half is 1 / (1 + exp(-2 y)).
template <typename T>
__device__ __forceinline__ T gelu_tanh(T x) {
  constexpr double SCALE = -2 * LOG2_E * 0.79788456080286536;
  return ptx::mul(x, sigmoid(ptx::mul(x, ptx::fma(T(SCALE * 0.044715), ptx::mul(x, x), T(SCALE)))));
}

/// x / (1 + exp(-x))
template <typename T>
__device__ __forceinline__ T silu(T x) {
  return ptx::mul(x, sigmoid(ptx::mul(T(-LOG2_E), x)));
}

}  // namespace jitgemm::device
