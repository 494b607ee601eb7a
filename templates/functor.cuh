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
__device__ __forceinline__ Accumulator value(const Scalar& x) { return value(x, Accumulator()); }

struct EpilogueFunctor {
  Scalars<Scalar> scalars;  // as the launch gives them; instead of its alpha:
  Accumulator alpha;        // with the scales of A and B
  Accumulator scale_d;

  static constexpr bool HAS_BIAS = BIAS != Bias::none, HAS_ADDEND = READS_C || HAS_BIAS;
  static constexpr bool SCALES_D = HAS_SCALES && sizeof(ElementD) == 1;

  /// beta * c + bias, rounded once, of what the kernel has of both.
  __device__ __forceinline__ Accumulator addend(Accumulator c, Accumulator bias) const {
    if constexpr (!READS_C) return bias;
    const Accumulator beta = value(scalars.beta);
    return HAS_BIAS ? ptx::fma(beta, c, bias) : ptx::mul(beta, c);
  }
  __device__ __forceinline__ Accumulator linear(Accumulator sum, Accumulator addend) const {
    return HAS_ADDEND ? ptx::fma(alpha, sum, addend) : ptx::mul(alpha, sum);
  }
  __device__ __forceinline__ Accumulator activated(Accumulator x) const { return activation(x, value(scalars.slope)); }
  __device__ __forceinline__ Accumulator scaled(Accumulator x) const { return SCALES_D ? ptx::mul(x, scale_d) : x; }

  __device__ __forceinline__ Accumulator operator()(Accumulator sum, Accumulator c, Accumulator bias) const {
    return scaled(activated(linear(sum, addend(c, bias))));
  }

  /// Two elements, step by step, so that neither waits for the other.
  __device__ __forceinline__ void operator()(Accumulator (&x)[2], const Accumulator (&c)[2],
                                             const Accumulator (&bias)[2]) const {
    const Accumulator addends[] = {addend(c[0], bias[0]), addend(c[1], bias[1])};
    x[0] = linear(x[0], addends[0]);
    x[1] = linear(x[1], addends[1]);
    x[0] = activated(x[0]);
    x[1] = activated(x[1]);
    x[0] = scaled(x[0]);
    x[1] = scaled(x[1]);
  }
};

}  // namespace jitgemm::device
