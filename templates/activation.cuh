// What the text of an activation may use beside ptx::add, mul, fma and erf. The text itself is the kernel's own, of
// src/core/activations.cpp.
#pragma once
#include "ide.cuh"
#include "ptx/math.cuh"

namespace jitgemm::device {

[[maybe_unused]] constexpr double LOG2_E = 1.4426950408889634;

/// 1 / (1 + 2^x)
__device__ __forceinline__ float sigmoid(float x) { return ptx::rcp(ptx::add(1.0f, ptx::ex2(x))); }
__device__ __forceinline__ double sigmoid(double x) { return 1.0 / ptx::add(1.0, ptx::exp2(x)); }

}  // namespace jitgemm::device
