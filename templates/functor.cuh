// The element-wise part of the epilogue: what becomes of one sum before it is rounded to D's type. Values in, a value
// out; it reads no memory and does not know where an element lies, so that any kernel can compute with it.
#pragma once
#include "ide.cuh"
#include "ptx/math.cuh"

namespace jitgemm::device {

struct EpilogueFunctor {
  Accumulator alpha;  // with the scales of A and B
  Accumulator beta;   // of kernels with READS_C
  Accumulator slope;  // of an activation that takes one
  Accumulator scale_d;

  static constexpr bool HAS_BIAS = BIAS != Bias::none, HAS_ADDEND = READS_C || HAS_BIAS;
  static constexpr bool SCALES_D = HAS_SCALES && sizeof(ElementD) == 1;

  /// beta * c + bias, rounded once, of what the kernel has of both.
  __device__ __forceinline__ Accumulator addend(Accumulator c, Accumulator bias) const {
    if constexpr (!READS_C) return bias;
    return HAS_BIAS ? ptx::fma(beta, c, bias) : ptx::mul(beta, c);
  }
  __device__ __forceinline__ Accumulator linear(Accumulator sum, Accumulator addend) const {
    return HAS_ADDEND ? ptx::fma(alpha, sum, addend) : ptx::mul(alpha, sum);
  }
  __device__ __forceinline__ Accumulator scaled(Accumulator activated) const {
    return SCALES_D ? ptx::mul(activated, scale_d) : activated;
  }

  __device__ __forceinline__ Accumulator operator()(Accumulator sum, Accumulator c, Accumulator bias) const {
    return scaled(activation(linear(sum, addend(c, bias)), slope));
  }

  /// Two elements, step by step, so that neither waits for the other.
  __device__ __forceinline__ void operator()(Accumulator (&x)[2], const Accumulator (&c)[2],
                                             const Accumulator (&bias)[2]) const {
    const Accumulator addends[] = {addend(c[0], bias[0]), addend(c[1], bias[1])};
    x[0] = linear(x[0], addends[0]);
    x[1] = linear(x[1], addends[1]);
    x[0] = activation(x[0], slope);
    x[1] = activation(x[1], slope);
    x[0] = scaled(x[0]);
    x[1] = scaled(x[1]);
  }
};

}  // namespace jitgemm::device
