// The element-wise part of the epilogue: what becomes of one sum before it is rounded to D's type. Values in, a value
// out; it reads no memory and does not know where an element lies, so that any kernel can compute with it.
#pragma once
#include "arguments.cuh"
#include "ide.cuh"
#include "ptx/math.cuh"

namespace jitgemm::device {

__device__ __forceinline__ float value(const Scalar& x, float) { return x.f32; }
__device__ __forceinline__ double value(const Scalar& x, double) { return x.f64; }
__device__ __forceinline__ int value(const Scalar& x, int) { return x.s32; }
__device__ __forceinline__ ElementCompute value(const Scalar& x) { return value(x, ElementCompute()); }

constexpr bool HAS_VECTOR_SCALES = SCALING_A == Scaling::vector || SCALING_B == Scaling::vector;
constexpr bool HAS_BLOCK_SCALES = is_of_blocks(SCALING_A);  // then B's are, too

/// What a sum is multiplied by: alpha with the scales of A and B or, with HAS_VECTOR_SCALES, alpha with that of the
/// problem's A, and then that of its B.
struct Factors {
  ElementCompute alpha, scale_b;
};

struct EpilogueFunctor {
  Scalars<Scalar> scalars;  // as the launch gives them; Factors take the place of its alpha
  ElementCompute scale_d;

  static constexpr bool HAS_BIAS = BIAS != Bias::none, HAS_ADDEND = READS_C || HAS_BIAS;
  static constexpr bool SCALES_D = HAS_SCALES && sizeof(ElementD) == 1;

  /// beta * c + bias, rounded once, of what the kernel has of both.
  __device__ __forceinline__ ElementCompute addend(ElementCompute c, ElementCompute bias) const {
    if constexpr (!READS_C) return bias;
    const ElementCompute beta = value(scalars.beta);
    return HAS_BIAS ? ptx::fma(beta, c, bias) : ptx::mul(beta, c);
  }
  __device__ __forceinline__ ElementCompute linear(ElementCompute sum, const Factors& factors,
                                                   ElementCompute addend) const {
    ElementCompute factor = factors.alpha;
    if constexpr (HAS_VECTOR_SCALES) {
      sum = ptx::mul(factors.alpha, sum);
      factor = factors.scale_b;
    }
    return HAS_ADDEND ? ptx::fma(factor, sum, addend) : ptx::mul(factor, sum);
  }
  __device__ __forceinline__ ElementCompute activated(ElementCompute x) const {
    return activation(x, value(scalars.slope));
  }
  __device__ __forceinline__ ElementCompute scaled(ElementCompute x) const {
    return SCALES_D ? ptx::mul(x, scale_d) : x;
  }

  __device__ __forceinline__ ElementCompute operator()(ElementCompute sum, const Factors& factors, ElementCompute c,
                                                       ElementCompute bias) const {
    return scaled(activated(linear(sum, factors, addend(c, bias))));
  }

  /// Two elements, step by step, so that neither waits for the other.
  __device__ __forceinline__ void operator()(ElementCompute (&x)[2], const Factors (&factors)[2],
                                             const ElementCompute (&c)[2], const ElementCompute (&bias)[2]) const {
    const ElementCompute addends[] = {addend(c[0], bias[0]), addend(c[1], bias[1])};
    x[0] = linear(x[0], factors[0], addends[0]);
    x[1] = linear(x[1], factors[1], addends[1]);
    x[0] = activated(x[0]);
    x[1] = activated(x[1]);
    x[0] = scaled(x[0]);
    x[1] = scaled(x[1]);
  }
};

}  // namespace jitgemm::device
