// From accumulators to D: activation(alpha * accumulator + beta * C + bias), converted and stored with bounds checks. The
// unit of work is a pair of neighbours in a row, which both kinds of tensor core leave in one thread.

namespace jitgemm::device {

enum class Activation { none, relu, leaky_relu };

__device__ __forceinline__ float load(const float* p) { return ptx::ld_global_f32(p); }
template <typename T>
__device__ __forceinline__ float load(const T* p) {
  return ptx::to_f32(T{ptx::ld_global_u16(p)});
}

__device__ __forceinline__ void load_pair(const float* p, float& x, float& y) { ptx::ld_global_v2_f32(p, x, y); }
template <typename T>
__device__ __forceinline__ void load_pair(const T* p, float& x, float& y) {
  const u32 pair = ptx::ld_global_u32(p);
  x = ptx::to_f32(T{u16(pair)});
  y = ptx::to_f32(T{u16(pair >> 16)});
}

__device__ __forceinline__ void store(float* p, float x) { ptx::st_global_f32(p, x); }
template <typename T>
__device__ __forceinline__ void store(T* p, float x) {
  T y;
  ptx::convert(x, y);
  ptx::st_global_u16(p, y.bits);
}

__device__ __forceinline__ u32 pack(F16, float low, float high) { return ptx::pack_f16x2(low, high); }
__device__ __forceinline__ u32 pack(BF16, float low, float high) { return ptx::pack_bf16x2(low, high); }

__device__ __forceinline__ void store_pair(float* p, float x, float y) { ptx::st_global_v2_f32(p, x, y); }
template <typename T>
__device__ __forceinline__ void store_pair(T* p, float x, float y) {
  ptx::st_global_u32(p, pack(T{}, x, y));
}

__device__ __forceinline__ float activate(float x, float slope) {
  // A comparison with NaN is false, so NaN passes through.
  if constexpr (ACTIVATION == Activation::relu) return x < 0.0f ? 0.0f : x;
  if constexpr (ACTIVATION == Activation::leaky_relu) return x < 0.0f ? slope * x : x;
  return x;
}

/// Turns the accumulators of (row, column) and (row, column + 1) into D's values; column is even. What lies outside of D
/// means nothing, and nothing is read for it. INTERIOR promises that both are inside.
template <bool INTERIOR>
__device__ __forceinline__ void finish(const Arguments& args, int row, int column, float& x, float& y) {
  x *= args.alpha;
  y *= args.alpha;
  const bool has_x = INTERIOR || (row < args.m && column < args.n);
  const bool has_y = INTERIOR || (row < args.m && column + 1 < args.n);
  if constexpr (READS_C) {
    const ElementD* c = static_cast<const ElementD*>(args.c) + row * args.ldc + column;
    float c_x = 0.0f, c_y = 0.0f;
    if (ALIGN_C >= 2 * int(sizeof(ElementD)) && has_y) {
      load_pair(c, c_x, c_y);
    } else {
      if (has_x) c_x = load(c);
      if (has_y) c_y = load(c + 1);
    }
    x += args.beta * c_x;
    y += args.beta * c_y;
  }
  if constexpr (HAS_BIAS) {
    const ElementD* bias = static_cast<const ElementD*>(args.bias) + column;
    if (has_x) x += load(bias);
    if (has_y) y += load(bias + 1);
  }
  x = activate(x, args.slope);
  y = activate(y, args.slope);
}

/// Finishes and stores D's elements (row, column) and (row, column + 1), as far as D has them; column is even.
template <bool INTERIOR>
__device__ __forceinline__ void store_to_d(const Arguments& args, int row, int column, float x, float y) {
  finish<INTERIOR>(args, row, column, x, y);
  if (!INTERIOR && (row >= args.m || column >= args.n)) return;
  ElementD* d = static_cast<ElementD*>(args.d) + row * args.ldd + column;
  if (ALIGN_D >= 2 * int(sizeof(ElementD))) {  // a row end, too: n is even
    store_pair(d, x, y);
  } else {
    store(d, x);
    if (INTERIOR || column + 1 < args.n) store(d + 1, y);
  }
}

}  // namespace jitgemm::device
