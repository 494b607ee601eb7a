// From accumulators to D: activation(alpha * accumulator + beta * C + bias), converted and stored with bounds checks.
// The unit of work is a pair of neighbours in a row, which both kinds of tensor core leave in one thread.
#pragma once
#include "arguments.cuh"
#include "ide.cuh"
#include "ptx/convert.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

template <typename, typename>
constexpr bool SAME = false;
template <typename T>
constexpr bool SAME<T, T> = true;

// C and bias are of the accumulator's type or of 16 bits, D of the accumulator's type or shorter.
template <typename T>
__device__ __forceinline__ Accumulator load(const T* p) {
  if constexpr (SAME<T, Accumulator>)
    return ptx::ld_global<T>(p);
  else
    return ptx::to_f32(T{ptx::ld_global<u16>(p)});
}
template <typename T>
__device__ __forceinline__ void load_pair(const T* p, Accumulator& x, Accumulator& y) {
  if constexpr (SAME<T, Accumulator>) {
    ptx::ld_global_v2(p, x, y);
  } else {
    const u32 pair = ptx::ld_global<u32>(p);
    x = ptx::to_f32(T{u16(pair)});
    y = ptx::to_f32(T{u16(pair >> 16)});
  }
}
template <typename T>
__device__ __forceinline__ void store(T* p, Accumulator x) {
  if constexpr (SAME<T, Accumulator>)
    ptx::st_global(p, x);
  else
    ptx::st_global(p, decltype(T::bits)(ptx::pack(T{}, x, x)));
}
template <typename T>
__device__ __forceinline__ void store_pair(T* p, Accumulator x, Accumulator y) {
  if constexpr (SAME<T, Accumulator>)
    ptx::st_global_v2(p, x, y);
  else
    ptx::st_global(p, ptx::pack(T{}, x, y));
}

__device__ __forceinline__ float value(const Scalar& x, float) { return x.f32; }
__device__ __forceinline__ double value(const Scalar& x, double) { return x.f64; }
__device__ __forceinline__ int value(const Scalar& x, int) { return x.s32; }
__device__ __forceinline__ Accumulator value(const Scalar& x) { return value(x, Accumulator()); }

/// 1 / (1 + 2^x)
__device__ __forceinline__ float sigmoid(float x) { return ptx::rcp(ptx::add(1.0f, ptx::ex2(x))); }
__device__ __forceinline__ double sigmoid(double x) { return 1.0 / ptx::add(1.0, ptx::exp2(x)); }

template <typename T>
__device__ __forceinline__ T activate(T x, const Scalar& slope) {
  constexpr double LOG2_E = 1.4426950408889634;
  // A comparison with NaN is false, so NaN passes through.
  if constexpr (ACTIVATION == Activation::relu) return x < T(0) ? T(0) : x;
  if constexpr (ACTIVATION == Activation::leaky_relu) return x < T(0) ? ptx::mul(value(slope), x) : x;
  if constexpr (ACTIVATION == Activation::gelu_erf) {  // (1 + erf(x / sqrt(2))) x / 2
    const T half = ptx::mul(T(0.5), x);
    return ptx::fma(half, ptx::erf(ptx::mul(x, T(0.70710678118654752))), half);
  }
  if constexpr (ACTIVATION == Activation::gelu_tanh) {  // (1 + tanh(y)) / 2 is 1 / (1 + exp(-2 y))
    constexpr double SCALE = -2 * LOG2_E * 0.79788456080286536;
    return ptx::mul(x, sigmoid(ptx::mul(x, ptx::fma(T(SCALE * 0.044715), ptx::mul(x, x), T(SCALE)))));
  }
  if constexpr (ACTIVATION == Activation::silu) return ptx::mul(x, sigmoid(ptx::mul(T(-LOG2_E), x)));
  return x;
}

__device__ __forceinline__ float scale_at(const float* scale) { return scale ? ptx::ld_global<float>(scale) : 1.0f; }

/// Where an operand of matrix `batch` begins, elements.
__device__ __forceinline__ i64 batch_offset(int batch, long long stride) { return BATCHED ? batch * stride : 0; }

/// What all of D is multiplied by. A kernel makes it once, while the first k-blocks are on their way: behind a tile's
/// last k-block two loads and a chain of five f64 instructions would show (on an H200 up to 0.4 us a tile).
struct Scaling {
  Accumulator alpha, d = 1;

  __device__ __forceinline__ explicit Scaling(const Arguments& args) : alpha(value(args.alpha)) {
    if constexpr (HAS_SCALES) {
      // In double precision no product of two rounds, none of three overflows, and so their order does not matter.
      const double scale_a = scale_at(args.scale_a), scale_b = scale_at(args.scale_b);
      alpha = float(ptx::mul(ptx::mul(scale_a, scale_b), double(alpha)));
      if constexpr (sizeof(ElementD) == 1) d = scale_at(args.scale_d);
    }
  }
};

/// Of one tile. With SWAP_AB the kernel computes D^T = B^T A^T: rows and columns are those of D^T,
/// all else lies in memory as without.
struct Epilogue {
  const Arguments& args;
  const Scaling& scaling;
  const WorkTile& tile;

  /// Elements from C's or D's first one to (row, column).
  static __device__ __forceinline__ i64 at(int row, int column, i64 ld) {
    return SWAP_AB ? column * ld + row : row * ld + column;
  }

  static constexpr bool HAS_ADDEND = READS_C || BIAS != Bias::none;

  /// beta * C + bias of (row, column) and (row, column + 1), rounded once; column is even. What lies outside of D means
  /// nothing, and nothing is read for it. INTERIOR promises that both are inside.
  template <bool INTERIOR>
  __device__ __forceinline__ void load_addends(int row, int column, Accumulator& x, Accumulator& y) const {
    const bool has_x = INTERIOR || (row < tile.row_end && column < tile.column_end);
    const bool has_y = INTERIOR || (row < tile.row_end && column + 1 < tile.column_end);
    const ElementC* bias = static_cast<const ElementC*>(args.bias);
    x = y = 0;
    if constexpr (BIAS == Bias::along_n) {
      if (has_x) x = load(bias + column);
      if (has_y) y = load(bias + column + 1);
    }
    if constexpr (BIAS == Bias::along_m) {
      if (has_x) x = y = load(bias + row);
    }
    if constexpr (READS_C) {
      const ElementC* c = static_cast<const ElementC*>(args.c) + batch_offset(tile.batch, args.stride_c);
      Accumulator c_x = 0, c_y = 0;
      if (!SWAP_AB && ALIGN_C >= 2 * int(sizeof(ElementC)) && has_y) {
        load_pair(c + at(row, column, args.ldc), c_x, c_y);
      } else {
        if (has_x) c_x = load(c + at(row, column, args.ldc));
        if (has_y) c_y = load(c + at(row, column + 1, args.ldc));
      }
      const Accumulator beta = value(args.beta);
      x = BIAS == Bias::none ? ptx::mul(beta, c_x) : ptx::fma(beta, c_x, x);
      y = BIAS == Bias::none ? ptx::mul(beta, c_y) : ptx::fma(beta, c_y, y);
    }
  }

  /// Turns the accumulators of (row, column) and (row, column + 1) into D's values, as load_addends() is told.
  template <bool INTERIOR>
  __device__ __forceinline__ void finish(int row, int column, Accumulator& x, Accumulator& y) const {
    if constexpr (HAS_ADDEND) {
      Accumulator addend_x, addend_y;
      load_addends<INTERIOR>(row, column, addend_x, addend_y);
      x = ptx::fma(scaling.alpha, x, addend_x);
      y = ptx::fma(scaling.alpha, y, addend_y);
    } else {
      x = ptx::mul(scaling.alpha, x);
      y = ptx::mul(scaling.alpha, y);
    }
    x = activate(x, args.slope);
    y = activate(y, args.slope);
    if constexpr (HAS_SCALES && sizeof(ElementD) == 1) {
      x = ptx::mul(x, scaling.d);
      y = ptx::mul(y, scaling.d);
    }
  }

  /// Brings the lines of ROWS x COLUMNS elements of C into the L2, by `threads` threads; what lies outside is replaced
  /// by the nearest inside.
  template <int ROWS, int COLUMNS>
  static __device__ __forceinline__ void prefetch_c(const Arguments& args, const WorkTile& tile, int row, int column,
                                                    u32 thread, u32 threads) {
    constexpr int LINE = 128 / int(sizeof(ElementC));  // elements
    constexpr int ROW_STEP = SWAP_AB ? LINE : 1, COLUMN_STEP = SWAP_AB ? 1 : LINE;
    constexpr int ACROSS = ceil_div(COLUMNS, COLUMN_STEP), LINES = ceil_div(ROWS, ROW_STEP) * ACROSS;
    const ElementC* c = static_cast<const ElementC*>(args.c) + batch_offset(tile.batch, args.stride_c);
    for (int i = thread; i < LINES; i += threads)
      ptx::prefetch_l2(c + at(min_of(row + i / ACROSS * ROW_STEP, tile.row_end - 1),
                              min_of(column + i % ACROSS * COLUMN_STEP, tile.column_end - 1), args.ldc));
  }

  /// Finishes and stores D's elements (row, column) and (row, column + 1), as far as D has them; column is even.
  template <bool INTERIOR>
  __device__ __forceinline__ void store_pair(int row, int column, Accumulator x, Accumulator y) const {
    finish<INTERIOR>(row, column, x, y);
    if (!INTERIOR && (row >= tile.row_end || column >= tile.column_end)) return;
    ElementD* d = static_cast<ElementD*>(args.d) + batch_offset(tile.batch, args.stride_d);
    if (!SWAP_AB && ALIGN_D >= 2 * int(sizeof(ElementD))) {  // a row end, too: n is even
      device::store_pair(d + at(row, column, args.ldd), x, y);
    } else {
      store(d + at(row, column, args.ldd), x);
      if (INTERIOR || column + 1 < tile.column_end) store(d + at(row, column + 1, args.ldd), y);
    }
  }
};

}  // namespace jitgemm::device
