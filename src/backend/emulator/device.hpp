// What templates/ptx/ is on a GPU, in plain C++: included by generated kernels when the emulator compiles them, after
// the types and before the main loop. The host includes it too, for Interface alone.
#pragma once

namespace jitgemm::device::emulator {

/// The functions of the running launch, given to a compiled kernel once, after it is loaded.
struct Interface {
  static constexpr unsigned current_version = 1;
  unsigned version;

  unsigned (*thread_index)();
  unsigned (*block_index)();
  unsigned (*grid_size)();
  unsigned (*dynamic_smem)();
  unsigned (*warp_uniform)(unsigned value);

  void (*bar_sync)(unsigned id, unsigned threads);
  bool (*bar_red_or)(unsigned id, unsigned threads, bool predicate);
  void (*warp_sync)();

  void (*st_shared)(unsigned address, const void* data, unsigned bytes);
  void (*ld_shared_v4)(unsigned address, unsigned* x);
  void (*ldmatrix_x4)(unsigned address, unsigned* x, bool transposed);
  void (*stmatrix_x4)(unsigned address, unsigned x0, unsigned x1, unsigned x2, unsigned x3);

  void (*misaligned_global)(const void* address, unsigned bytes);
  void (*ld_global_cg_v4)(const float* address, float* x);
  void (*st_global_cg_v4)(float* address, float x, float y, float z, float w);
  unsigned (*atom_inc_acq_rel_gpu)(unsigned* address, unsigned limit);

  void (*cp_async)(unsigned shared, const void* global, unsigned size, unsigned bytes);
  void (*cp_async_commit_group)();
  void (*cp_async_wait_group)(unsigned pending);

  void (*mma_m16n8k16)(bool bf16, float* d, const unsigned* a, unsigned b0, unsigned b1);

  void (*mbarrier_init)(unsigned barrier, unsigned count);
  void (*fence_mbarrier_init)();
  void (*mbarrier_arrive)(unsigned barrier);
  void (*mbarrier_arrive_expect_tx)(unsigned barrier, unsigned bytes);
  void (*mbarrier_wait_parity)(unsigned barrier, unsigned parity);

  void (*tma_load_2d)(unsigned shared, const void* map, unsigned barrier, int inner, int outer);
  void (*tma_store_2d)(const void* map, unsigned shared, int inner, int outer);
  void (*tma_store_commit_group)();
  void (*tma_store_wait_group_read)(unsigned pending);
  void (*fence_proxy_async)();

  void (*wgmma_fence)();
  void (*wgmma_commit_group)();
  void (*wgmma_wait_group)(unsigned pending);
  void (*wgmma)(bool bf16, unsigned n, bool transpose_a, bool transpose_b, float* d, unsigned long long a,
                unsigned long long b, bool accumulate);
  void (*setmaxnreg)(unsigned registers, bool increase);
};

}  // namespace jitgemm::device::emulator

#ifdef JITGEMM_EMULATOR

#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__

namespace jitgemm::device::emulator {
static const Interface* runtime;
}
extern "C" void jitgemm_emulator_bind(const jitgemm::device::emulator::Interface* interface) {
  jitgemm::device::emulator::runtime = interface;
}

namespace jitgemm::device::ptx {

using emulator::runtime;

inline u32 thread_index() { return runtime->thread_index(); }
inline u32 block_index() { return runtime->block_index(); }
inline u32 grid_size() { return runtime->grid_size(); }
inline u32 warp_uniform(u32 value) { return runtime->warp_uniform(value); }

inline void bar_sync(u32 id, u32 threads) { runtime->bar_sync(id, threads); }
inline bool bar_red_or(u32 id, u32 threads, bool predicate) { return runtime->bar_red_or(id, threads, predicate); }
inline void warp_sync() { runtime->warp_sync(); }

inline u32 dynamic_smem() { return runtime->dynamic_smem(); }
inline void st_shared_v4(u32 address, U32x4 x) { runtime->st_shared(address, &x, 16); }
inline void st_shared_v2_f32(u32 address, float x, float y) {
  const float pair[2] = {x, y};
  runtime->st_shared(address, pair, 8);
}
inline U32x4 ld_shared_v4(u32 address) {
  U32x4 x;
  runtime->ld_shared_v4(address, &x.x);
  return x;
}
inline void ldmatrix_x4(u32 address, u32 (&x)[4]) { runtime->ldmatrix_x4(address, x, false); }
inline void ldmatrix_x4_trans(u32 address, u32 (&x)[4]) { runtime->ldmatrix_x4(address, x, true); }
inline void stmatrix_x4(u32 address, u32 x0, u32 x1, u32 x2, u32 x3) { runtime->stmatrix_x4(address, x0, x1, x2, x3); }

template <class T>
inline T load_global(const void* address) {
  if ((u64)address % sizeof(T)) runtime->misaligned_global(address, sizeof(T));
  T x;
  __builtin_memcpy(&x, address, sizeof x);
  return x;
}
template <class T>
inline void store_global(void* address, T x) {
  if ((u64)address % sizeof(T)) runtime->misaligned_global(address, sizeof(T));
  __builtin_memcpy(address, &x, sizeof x);
}
inline u16 ld_global_u16(const void* address) { return load_global<u16>(address); }
inline u32 ld_global_u32(const void* address) { return load_global<u32>(address); }
inline float ld_global_f32(const void* address) { return load_global<float>(address); }
inline void st_global_u16(void* address, u16 x) { store_global(address, x); }
inline void st_global_u32(void* address, u32 x) { store_global(address, x); }
inline void st_global_f32(void* address, float x) { store_global(address, x); }
struct alignas(8) FloatPair {
  float x, y;
};
inline void ld_global_v2_f32(const float* address, float& x, float& y) {
  const FloatPair pair = load_global<FloatPair>(address);
  x = pair.x;
  y = pair.y;
}
inline void st_global_v2_f32(float* address, float x, float y) { store_global(address, FloatPair{x, y}); }
inline void ld_global_cg_v4(const float* address, float (&x)[4]) { runtime->ld_global_cg_v4(address, x); }
inline void st_global_cg_v4(float* address, float x, float y, float z, float w) {
  runtime->st_global_cg_v4(address, x, y, z, w);
}
inline u32 atom_inc_acq_rel_gpu(u32* address, u32 limit) { return runtime->atom_inc_acq_rel_gpu(address, limit); }

inline float bits_to_f32(u32 bits) { return __builtin_bit_cast(float, bits); }
inline u32 f32_to_bits(float x) { return __builtin_bit_cast(u32, x); }

inline float to_f32(float x) { return x; }
inline float to_f32(F16 x) {
  const u32 sign = u32(x.bits & 0x8000) << 16, magnitude = x.bits & 0x7fff;
  if (magnitude >= 0x7c00) return bits_to_f32(sign | 0x7f800000 | magnitude << 13);
  return bits_to_f32(sign | f32_to_bits(bits_to_f32(magnitude << 13) * 0x1p112f));  // rebiased, subnormals too
}
inline float to_f32(BF16 x) { return bits_to_f32(u32(x.bits) << 16); }

inline void convert(float x, float& y) { y = x; }
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
template <class T>
inline u32 pack_pair(float low, float high) {
  T x, y;
  convert(low, x);
  convert(high, y);
  return x.bits | u32(y.bits) << 16;
}
inline u32 pack_f16x2(float low, float high) { return pack_pair<F16>(low, high); }
inline u32 pack_bf16x2(float low, float high) { return pack_pair<BF16>(low, high); }

template <int BYTES>
inline void cp_async(u32 shared, const void* global, bool reads) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16);
  runtime->cp_async(shared, global, BYTES, reads ? BYTES : 0);
}
inline void cp_async_commit_group() { runtime->cp_async_commit_group(); }
template <int PENDING>
inline void cp_async_wait_group() {
  runtime->cp_async_wait_group(PENDING);
}

inline void mma_m16n8k16(F16, float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  runtime->mma_m16n8k16(false, d, a, b0, b1);
}
inline void mma_m16n8k16(BF16, float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  runtime->mma_m16n8k16(true, d, a, b0, b1);
}

inline void mbarrier_init(u32 barrier, u32 count) { runtime->mbarrier_init(barrier, count); }
inline void fence_mbarrier_init() { runtime->fence_mbarrier_init(); }
inline void mbarrier_arrive(u32 barrier) { runtime->mbarrier_arrive(barrier); }
inline void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes) { runtime->mbarrier_arrive_expect_tx(barrier, bytes); }
inline void mbarrier_wait_parity(u32 barrier, u32 parity) { runtime->mbarrier_wait_parity(barrier, parity); }

inline void prefetch_tensormap(const TensorMap*) {}
inline void tma_load_2d(u32 shared, const TensorMap* map, u32 barrier, int inner, int outer) {
  runtime->tma_load_2d(shared, map, barrier, inner, outer);
}
inline void tma_store_2d(const TensorMap* map, u32 shared, int inner, int outer) {
  runtime->tma_store_2d(map, shared, inner, outer);
}
inline void tma_store_commit_group() { runtime->tma_store_commit_group(); }
template <int PENDING>
inline void tma_store_wait_group_read() {
  runtime->tma_store_wait_group_read(PENDING);
}
inline void fence_proxy_async() { runtime->fence_proxy_async(); }

inline void wgmma_fence() { runtime->wgmma_fence(); }
inline void wgmma_commit_group() { runtime->wgmma_commit_group(); }
template <int PENDING>
inline void wgmma_wait_group() {
  static_assert(PENDING >= 0 && PENDING <= 7);
  runtime->wgmma_wait_group(PENDING);
}

template <int REGISTERS>
inline void setmaxnreg_inc() {
  runtime->setmaxnreg(REGISTERS, true);
}
template <int REGISTERS>
inline void setmaxnreg_dec() {
  runtime->setmaxnreg(REGISTERS, false);
}

inline constexpr bool is_bf16(F16) { return false; }
inline constexpr bool is_bf16(BF16) { return true; }
template <int TRANSPOSE_A, int TRANSPOSE_B, class T>
inline void wgmma_m64n128k16(T type, float (&d)[64], u64 a, u64 b, bool accumulate) {
  runtime->wgmma(is_bf16(type), 128, TRANSPOSE_A, TRANSPOSE_B, d, a, b, accumulate);
}
template <int TRANSPOSE_A, int TRANSPOSE_B, class T>
inline void wgmma_m64n256k16(T type, float (&d)[128], u64 a, u64 b, bool accumulate) {
  runtime->wgmma(is_bf16(type), 256, TRANSPOSE_A, TRANSPOSE_B, d, a, b, accumulate);
}

}  // namespace jitgemm::device::ptx

#endif
