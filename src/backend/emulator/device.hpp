// What templates/ptx/ is on a GPU, in plain C++: included by generated kernels when the emulator compiles them, after
// the types and before the main loop. Their DEPENDENT_LAUNCH tells whether global memory must wait for
// griddepcontrol_wait. The host includes it too, for Interface alone.
#pragma once

#ifndef JITGEMM_EMULATOR  // the host: a kernel's text begins with the types
#include "jitgemm/types.hpp"
#include "types.cuh"
#endif

namespace jitgemm::device {
struct TensorMap;  // not in every kernel's text
}

namespace jitgemm::device::emulator {

/// What tensor cores multiply. A kernel knows a DataType by its number.
#ifdef JITGEMM_EMULATOR
enum class TensorType : unsigned char;
#else
using TensorType = DataType;
#endif

/// The emulator's functions, given to a compiled kernel once, after it is loaded.
struct Interface {
#define FUNCTION(result, name, parameters) result(*name) parameters;
#include "functions.def"
};

}  // namespace jitgemm::device::emulator

#ifdef JITGEMM_EMULATOR

#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__

namespace jitgemm::device::emulator {
static Interface runtime;

/// A launch gives bytes; what kernel they are for says how many there are.
template <typename Arguments>
constexpr unsigned argument_bytes(void (*)(Arguments)) {
  return sizeof(Arguments);
}
template <typename Arguments>
void run(void (*kernel)(Arguments), const void* arguments) {
  kernel(*static_cast<const Arguments*>(arguments));
}
}  // namespace jitgemm::device::emulator
/// Returns the text's DEPENDENT_LAUNCH.
extern "C" bool jitgemm_emulator_bind(const jitgemm::device::emulator::Interface* interface) {
  jitgemm::device::emulator::runtime = *interface;
  return jitgemm::device::DEPENDENT_LAUNCH;
}

namespace jitgemm::device::ptx {

using emulator::runtime;

// What is the emulator's function as it is.
#define FUNCTION(result, name, parameters) constexpr auto& name = runtime.name;
#define PART(result, name, parameters)
#include "functions.def"

template <typename T>
void compute_now(T&) {}
inline u32 shuffle(u32 value, u32 lane) { return runtime.shuffle(value, lane); }
inline float shuffle(float value, u32 lane) {
  return __builtin_bit_cast(float, runtime.shuffle(__builtin_bit_cast(u32, value), lane));
}
inline int lowest_bit(u32 bits) { return __builtin_ctz(bits); }
inline int highest_bit(u32 bits) { return 31 - __builtin_clz(bits); }
inline bool elect_one() { return warp_uniform(thread_index()) == thread_index(); }

template <typename T>
inline T load_shared(u32 address) {
  T x;
  runtime.ld_shared(address, &x, sizeof x);
  return x;
}
inline void st_shared_u8(u32 address, u8 x) { runtime.st_shared(address, &x, 1); }
inline void st_shared_u32(u32 address, u32 x) { runtime.st_shared(address, &x, 4); }
inline void st_shared_u16(u32 address, u16 x) { runtime.st_shared(address, &x, 2); }
inline void st_shared_v2(u32 address, u32 x, u32 y) {
  const u32 pair[2] = {x, y};
  runtime.st_shared(address, pair, 8);
}
inline void st_shared_v4(u32 address, U32x4 x) { runtime.st_shared(address, &x, 16); }
inline u32 ld_shared_u32(u32 address) { return load_shared<u32>(address); }
inline void ld_shared(u32 address, float& x) { x = load_shared<float>(address); }
inline void ld_shared(u32 address, double& x) { x = load_shared<double>(address); }
inline void st_shared(u32 address, double x) { runtime.st_shared(address, &x, 8); }
inline void st_shared(u32 address, i64 x) { runtime.st_shared(address, &x, 8); }
inline void ld_shared(u32 address, i64& x) { x = load_shared<i64>(address); }
inline void ld_shared_v2(u32 address, float (&x)[2]) { runtime.ld_shared(address, x, 8); }
inline void ld_shared_v4(u32 address, int (&x)[4]) { runtime.ld_shared(address, x, 16); }
inline void ld_shared_v4(u32 address, float (&x)[4]) { runtime.ld_shared(address, x, 16); }
inline U32x4 ld_shared_v4(u32 address) { return load_shared<U32x4>(address); }
inline void ldmatrix_x4(u32 address, u32 (&x)[4]) { runtime.ldmatrix_x4(address, x, false); }
inline void ldmatrix_x4_trans(u32 address, u32 (&x)[4]) { runtime.ldmatrix_x4(address, x, true); }
template <bool TRANSPOSED>
inline void stmatrix_x4(u32 address, u32 x0, u32 x1, u32 x2, u32 x3) {
  const u32 x[4] = {x0, x1, x2, x3};
  runtime.stmatrix(address, x, 4, TRANSPOSED);
}
template <bool TRANSPOSED>
inline void stmatrix_x2(u32 address, u32 x0, u32 x1) {
  const u32 x[2] = {x0, x1};
  runtime.stmatrix(address, x, 2, TRANSPOSED);
}

template <bool TRANSPOSED>
inline void stmatrix_x1(u32 address, u32 x) {
  runtime.stmatrix(address, &x, 1, TRANSPOSED);
}

template <u32 SELECTOR>
inline u32 prmt(u32 low, u32 high) {
  const u64 bytes = low | u64(high) << 32;
  u32 y = 0;
  for (int i = 0; i < 4; ++i) y |= u32(bytes >> 8 * (SELECTOR >> 4 * i & 7) & 0xff) << 8 * i;
  return y;
}

inline void check_global(const void* address, u32 bytes) {
  if constexpr (DEPENDENT_LAUNCH) runtime.check_dependencies("an access of global memory");
  if ((u64)address % bytes || (u64)address < 0x10000) runtime.broken_global(address, bytes);
}
inline void check_word(const u32* address) { runtime.check_word(address); }
inline void check_word(const u64* address) { runtime.check_word(address); }
inline void check_word(const void*) {}  // what devices tell each other has 32 or 64 bits
template <typename T>
inline T ld_global(const void* address) {
  check_global(address, sizeof(T));
  check_word(static_cast<const T*>(address));
  T x;
  __builtin_memcpy(&x, address, sizeof x);
  return x;
}
template <typename T>
inline void st_global(void* address, T x) {
  check_global(address, sizeof(T));
  check_word(static_cast<const T*>(address));
  __builtin_memcpy(address, &x, sizeof x);
}
template <typename T>
inline void ld_global_v2(const T* address, T& x, T& y) {
  check_global(address, 2 * sizeof(T));
  x = address[0];
  y = address[1];
}
template <typename T>
inline void st_global_v2(T* address, T x, T y) {
  check_global(address, 2 * sizeof(T));
  address[0] = x;
  address[1] = y;
}
template <typename T, int N>
inline void ld_global_cg(const T* address, T (&x)[N]) {
  static_assert(sizeof x == 16);
  runtime.ld_global_cg(address, x);
}
template <typename T, int N>
inline void st_global_cg(T* address, const T (&x)[N]) {
  static_assert(sizeof x == 16);
  runtime.st_global_cg(address, x);
}
template <int COUNT>
inline void ld_relaxed_sys(const u64* address, u64 (&x)[COUNT]) {
  runtime.ld_relaxed_sys(address, x, COUNT);
}
template <int COUNT>
inline void st_relaxed_sys(u64* address, const u64 (&x)[COUNT]) {
  runtime.st_relaxed_sys(address, x, COUNT);
}
inline void prefetch_l2(const void*) {}
inline void prefetch_l1(const void*) {}

inline float bits_to_f32(u32 bits) { return __builtin_bit_cast(float, bits); }
inline u32 f32_to_bits(float x) { return __builtin_bit_cast(u32, x); }

inline float from_bits(float, u32 bits) { return bits_to_f32(bits); }
inline int from_bits(int, u32 bits) { return int(bits); }
inline double from_bits(double, u64 bits) { return __builtin_bit_cast(double, bits); }

inline float to_f32(F16 x) {
  const u32 sign = u32(x.bits & 0x8000) << 16, magnitude = x.bits & 0x7fff;
  if (magnitude >= 0x7c00) return bits_to_f32(sign | 0x7f800000 | magnitude << 13);
  return bits_to_f32(sign | f32_to_bits(bits_to_f32(magnitude << 13) * 0x1p112f));  // rebiased, subnormals too
}
inline float to_f32(BF16 x) { return bits_to_f32(u32(x.bits) << 16); }
inline float to_f32(TF32 x) { return bits_to_f32(x.bits); }

inline void convert(float x, F16& y) {
  const u32 bits = f32_to_bits(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {
    y.bits = 0x7fff;
  } else if (magnitude >= 0x477ff000) {  // 65520 and more round to infinity
    y.bits = u16(sign | 0x7c00);
  } else if (magnitude < 0x38800000) {  // below 2^-14: the sum's last bit is the subnormals' 2^-24
    y.bits = u16(sign | (f32_to_bits(bits_to_f32(magnitude) + 0.5f) - 0x3f000000));
  } else {
    y.bits = u16(sign | (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13);
  }
}
inline void convert(float x, BF16& y) {
  const u32 bits = f32_to_bits(x);
  y.bits = (bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : u16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline u32 to_f16x2(E5M2, u16 pair) { return (u32(pair & 0xff) | u32(pair >> 8) << 16) << 8; }
inline u32 to_f16x2(E4M3, u16 pair) {
  const auto widen = [](u32 x) {  // the exponent moves by 8, which a multiplication does for subnormals, too
    F16 y;
    convert((x & 0x7f) == 0x7f ? bits_to_f32(0x7fc00000) : to_f32(F16{u16((x & 0x80) << 8 | (x & 0x7f) << 7)}) * 256,
            y);
    return u32(y.bits);
  };
  return widen(pair & 0xff) | widen(pair >> 8) << 16;
}
/// To 8 bits, saturating. `to_normal` added to a normal f32's exponent gives the type's; `unit` is its smallest
/// subnormal.
inline u8 to_fp8(float x, int fraction_bits, int to_normal, float unit, u32 largest) {
  const u32 bits = f32_to_bits(x), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7f;
  const int dropped = 23 - fraction_bits;
  u32 rounded;
  if (int(magnitude >> 23) + to_normal < 1) {
    rounded = u32(f32_to_bits(bits_to_f32(magnitude) / unit + 0x1p23f) - f32_to_bits(0x1p23f));
  } else {
    rounded = (magnitude + (u32(to_normal) << 23) + (1u << (dropped - 1)) - 1 + (magnitude >> dropped & 1)) >> dropped;
  }
  return u8(sign | (rounded > largest ? largest : rounded));
}
inline void convert(float x, E4M3& y) { y.bits = to_fp8(x, 3, 7 - 127, 0x1p-9f, 0x7e); }
inline void convert(float x, E5M2& y) { y.bits = to_fp8(x, 2, 15 - 127, 0x1p-16f, 0x7b); }
template <typename T>
inline auto pack(T, float low, float high) {
  T x, y;
  convert(low, x);
  convert(high, y);
  if constexpr (sizeof(T) == 1)
    return u16(x.bits | y.bits << 8);
  else
    return x.bits | u32(y.bits) << 16;
}

// The host's compiler contracts nothing: -ffp-contract=off.
inline float add(float x, float y) { return x + y; }
inline double add(double x, double y) { return x + y; }
inline int add(int x, int y) { return int(u32(x) + u32(y)); }
inline float mul(float x, float y) { return x * y; }
inline double mul(double x, double y) { return x * y; }
inline int mul(int x, int y) { return int(u32(x) * u32(y)); }
inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
inline int fma(int x, int y, int z) { return int(u32(x) * u32(y) + u32(z)); }

inline float abs(float x) { return __builtin_fabsf(x); }
inline float max_or_nan(float x, float y) { return x != x || x > y ? x : y; }

inline float erf(float x) { return __builtin_erff(x); }
inline double erf(double x) { return __builtin_erf(x); }
inline double exp2(double x) { return __builtin_exp2(x); }
inline float without_subnormals(float x) { return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0, x) : x; }
inline float ex2(float x) { return without_subnormals(__builtin_exp2f(x)); }
inline float rcp(float x) { return without_subnormals(1 / without_subnormals(x)); }

template <int BYTES>
inline void cp_async(u32 shared, const void* global, bool reads) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16);
  runtime.cp_async(shared, global, BYTES, reads ? BYTES : 0);
}
template <int PENDING>
inline void cp_async_wait_group() {
  runtime.cp_async_wait_group(PENDING);
}

using emulator::TensorType;
#include "tensor_types.hpp"  // tensor_type() of a number of each of them

template <typename A, typename B, typename D>
inline void mma_m16n8(A, B, D (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const u32 b[2] = {b0, b1};
  runtime.mma(tensor_type(A{}), tensor_type(B{}), d, a, b);
}
inline void mma_m16n8k4(double (&d)[4], double a0, double a1, double b) {
  const double a[2] = {a0, a1};
  runtime.mma(tensor_type(a0), tensor_type(b), d, a, &b);
}

template <typename T>
inline void st_async_cluster(u32 mapped, const T (&x)[4], u32 mapped_barrier) {
  runtime.st_async_cluster(mapped, x, sizeof x, mapped_barrier);
}

inline void prefetch_tensormap(const TensorMap*) {}
template <int PENDING>
inline void tma_store_wait_group_read() {
  runtime.tma_store_wait_group_read(PENDING);
}

template <int PENDING>
inline void tma_store_wait_group() {
  runtime.tma_store_wait_group(PENDING);
}

template <int PENDING>
inline void wgmma_wait_group() {
  static_assert(PENDING >= 0 && PENDING <= 7);
  runtime.wgmma_wait_group(PENDING);
}

template <int REGISTERS>
inline void setmaxnreg_inc() {
  runtime.setmaxnreg(REGISTERS, true);
}
template <int REGISTERS>
inline void setmaxnreg_dec() {
  runtime.setmaxnreg(REGISTERS, false);
}

template <typename A, typename B, bool TRANSPOSE_A, bool TRANSPOSE_B, typename D, int COUNT>
inline void wgmma(D (&d)[COUNT], u64 a, u64 b, bool accumulate) {
  runtime.wgmma(tensor_type(A{}), tensor_type(B{}), 2 * COUNT, TRANSPOSE_A, TRANSPOSE_B, d, a, b, accumulate);
}
template <bool TRANSPOSE_A, bool TRANSPOSE_B, u32 STEP_A, u32 STEP_B, typename A, typename B, typename D, int COUNT>
inline void wgmma_k_block(A, B, D (&d)[COUNT], u64 a, u64 b, bool accumulate) {
  for (u32 i = 0; i < 4; ++i)
    wgmma<A, B, TRANSPOSE_A, TRANSPOSE_B>(d, a + i * STEP_A, b + i * STEP_B, accumulate || i > 0);
}

}  // namespace jitgemm::device::ptx

#endif
