// What the text of an epilogue of the caller's own may call. CUDA has the functions of <math.h> by itself; those that
// need no memory there are given to the emulator here.
#pragma once
#include "activation.cuh"
#include "activation_gradients.cuh"
#include "ide.cuh"

// What machines compute each in its own way, and who checks them may give errors: of the value, or of 1 where the value
// is what a difference leaves.
#ifndef JITGEMM_APPROXIMATE
#define JITGEMM_APPROXIMATE(x) (x)
#define JITGEMM_APPROXIMATE_DIFFERENCE(x) (x)
#endif
// Macros where <math.h> is included, as nvcc does.
#undef INFINITY
#undef NAN
#undef FLT_MAX

/// The caller's own functions of these names hide them.
namespace epilogue_functions {
#define JITGEMM_ACTIVATION(name, approximate)                                                      \
  __device__ __forceinline__ float name(float x) { return approximate(jitgemm::device::name(x)); } \
  __device__ __forceinline__ double name(double x) { return approximate(jitgemm::device::name(x)); }
JITGEMM_ACTIVATION(sigmoid, JITGEMM_APPROXIMATE)
JITGEMM_ACTIVATION(gelu_erf, JITGEMM_APPROXIMATE)
JITGEMM_ACTIVATION(gelu_tanh, JITGEMM_APPROXIMATE)
JITGEMM_ACTIVATION(silu, JITGEMM_APPROXIMATE)
JITGEMM_ACTIVATION(dgelu_erf, JITGEMM_APPROXIMATE_DIFFERENCE)
JITGEMM_ACTIVATION(dgelu_tanh, JITGEMM_APPROXIMATE_DIFFERENCE)
JITGEMM_ACTIVATION(dsilu, JITGEMM_APPROXIMATE_DIFFERENCE)
#undef JITGEMM_ACTIVATION
}  // namespace epilogue_functions

namespace epilogue_text {
using namespace epilogue_functions;

[[maybe_unused]] constexpr double log2_e = jitgemm::device::LOG2_E;

[[maybe_unused]] constexpr float INFINITY = __builtin_bit_cast(float, 0x7f800000u),
                                 NAN = __builtin_bit_cast(float, 0x7fc00000u), FLT_MAX = 3.402823466e+38f;
using int32_t = int;
using uint32_t = unsigned;
using int64_t = long long;
using uint64_t = unsigned long long;

#ifdef JITGEMM_EMULATOR
#define JITGEMM_MATH_1(name)                                                        \
  inline double name(double x) { return JITGEMM_APPROXIMATE(__builtin_##name(x)); } \
  inline float name##f(float x) { return JITGEMM_APPROXIMATE(__builtin_##name##f(x)); }
#define JITGEMM_EXACT_1(name)                                  \
  inline double name(double x) { return __builtin_##name(x); } \
  inline float name##f(float x) { return __builtin_##name##f(x); }
#define JITGEMM_EXACT_2(name)                                               \
  inline double name(double x, double y) { return __builtin_##name(x, y); } \
  inline float name##f(float x, float y) { return __builtin_##name##f(x, y); }
JITGEMM_EXACT_1(fabs)
JITGEMM_EXACT_1(sqrt)
JITGEMM_MATH_1(cbrt)
JITGEMM_MATH_1(exp)
JITGEMM_MATH_1(exp2)
JITGEMM_MATH_1(expm1)
JITGEMM_MATH_1(log)
JITGEMM_MATH_1(log2)
JITGEMM_MATH_1(log1p)
JITGEMM_MATH_1(tanh)
JITGEMM_MATH_1(atan)
JITGEMM_MATH_1(erf)
JITGEMM_EXACT_1(floor)
JITGEMM_EXACT_1(ceil)
JITGEMM_EXACT_1(rint)
JITGEMM_EXACT_1(trunc)
JITGEMM_EXACT_1(round)
JITGEMM_EXACT_2(fmax)
JITGEMM_EXACT_2(fmin)
JITGEMM_EXACT_2(fmod)
JITGEMM_EXACT_2(copysign)
#undef JITGEMM_MATH_1
#undef JITGEMM_EXACT_1
#undef JITGEMM_EXACT_2
inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
inline float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline double rsqrt(double x) { return JITGEMM_APPROXIMATE(1 / __builtin_sqrt(x)); }
inline float rsqrtf(float x) { return JITGEMM_APPROXIMATE(1 / __builtin_sqrtf(x)); }
inline float powf(float x, float y) { return JITGEMM_APPROXIMATE(__builtin_powf(x, y)); }
#define JITGEMM_OF_EACH_TYPE(T)                \
  inline T abs(T x) { return x < 0 ? -x : x; } \
  inline bool isnan(T x) { return x != x; }    \
  inline bool isinf(T x) { return x - x != 0 && x == x; }
JITGEMM_OF_EACH_TYPE(float)
JITGEMM_OF_EACH_TYPE(double)
inline float min(float x, float y) { return fminf(x, y); }
inline float max(float x, float y) { return fmaxf(x, y); }
inline double min(double x, double y) { return fmin(x, y); }
inline double max(double x, double y) { return fmax(x, y); }
#undef JITGEMM_OF_EACH_TYPE
inline int min(int x, int y) { return y < x ? y : x; }
inline int max(int x, int y) { return x < y ? y : x; }
inline int abs(int x) { return x < 0 ? -x : x; }
#endif

}  // namespace epilogue_text
