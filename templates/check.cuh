// The tuner's check of what a candidate computes. A plain dot product in double precision, one block an element, and
// the epilogue's functor say what an element has to be; D as a whole is compared with the first D that was accepted.
// Both are written to be seen through, not to be fast: a launch of either is short beside the timing of a candidate.
#pragma once
#include "check_arguments.cuh"
#include "functor.cuh"
#include "ide.cuh"
#include "ptx/barrier.cuh"
#include "ptx/convert.cuh"
#include "ptx/dependent_launch.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "ptx/shared.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/words_64.cuh"

namespace jitgemm::device {

constexpr int THREADS = 128, BLOCKS_PER_SM = 8;
constexpr bool INTEGERS = Accumulator(0.5f) == Accumulator(0);

__device__ __forceinline__ double absolute(double x) { return x < 0 ? -x : x; }

// What an element in memory is to the multiplication, exactly.
__device__ __forceinline__ double exact(F16 x) { return ptx::to_f32(x); }
__device__ __forceinline__ double exact(BF16 x) { return ptx::to_f32(x); }
__device__ __forceinline__ double exact(TF32 x) { return ptx::to_f32(TF32{x.bits & ~0x1fffu}); }
__device__ __forceinline__ double exact(E4M3 x) { return ptx::to_f32(F16{u16(ptx::to_f16x2(x, x.bits))}); }
__device__ __forceinline__ double exact(E5M2 x) { return ptx::to_f32(F16{u16(ptx::to_f16x2(x, x.bits))}); }

template <typename T>
__device__ __forceinline__ double load_exact(const T* p) {
  return exact(T{ptx::ld_global<decltype(T::bits)>(p)});
}
__device__ __forceinline__ double load_exact(const s8* p) { return ptx::ld_global<s8>(p); }
__device__ __forceinline__ double load_exact(const int* p) { return ptx::ld_global<int>(p); }
__device__ __forceinline__ double load_exact(const float* p) { return ptx::ld_global<float>(p); }
__device__ __forceinline__ double load_exact(const double* p) { return ptx::ld_global<double>(p); }

__device__ __forceinline__ double load_scale(const float* scale) { return scale ? load_exact(scale) : 1; }

/// With the scales, as every kernel multiplies them.
__device__ __forceinline__ Factors factors_of(const CheckArguments& args) {
  ElementCompute alpha = value(args.scalars.alpha);
  if constexpr (HAS_SCALES)
    alpha = ElementCompute(ptx::mul(ptx::mul(load_scale(args.scale_a), load_scale(args.scale_b)), double(alpha)));
  return {alpha, 1};
}

/// x[i] of all threads, joined by join(i, one, other) in an order that never changes; thread 0 has the result.
template <int COUNT, typename T, typename Join>
__device__ __forceinline__ void reduce(T (&x)[COUNT], const Join& join) {
  const u32 smem = ptx::dynamic_smem(), thread = ptx::thread_index();
#pragma unroll
  for (int i = 0; i < COUNT; ++i) ptx::st_shared(smem + (i * THREADS + thread) * 8, x[i]);
#pragma unroll 1
  for (u32 half = THREADS / 2; half > 0; half /= 2) {
    ptx::bar_sync(0, THREADS);
    if (thread < half) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        T other;
        ptx::ld_shared(smem + (i * THREADS + thread + half) * 8, other);
        x[i] = join(i, x[i], other);
        ptx::st_shared(smem + (i * THREADS + thread) * 8, x[i]);
      }
    }
  }
}

/// The elements of D by position, see CheckedChunk.
struct Position {
  i64 row, column;  // of the whole batch

  __device__ __forceinline__ Position(const CheckArguments& args, i64 position)
      : row(position / args.width), column(position - row * args.width) {}
  __device__ __forceinline__ void advance(const Position& step, i64 width) {
    row += step.row;
    column += step.column;
    if (column >= width) {
      column -= width;
      ++row;
    }
  }

  __device__ __forceinline__ const ElementD* in_d(const CheckArguments& args) const {
    const i64 batch = BATCHED ? row / args.m : 0;
    return static_cast<const ElementD*>(args.d) +
           (batch * args.stride_d + (row - batch * args.m) * args.row_d + column);
  }
  __device__ __forceinline__ ElementD* in_accepted(const CheckArguments& args) const {
    return static_cast<ElementD*>(args.accepted) + (row * args.n + column);
  }
};

/// Calls visit(position, its number) for what this thread has of the block's chunk, in order.
template <typename Visit>
__device__ __forceinline__ void for_each_position(const CheckArguments& args, const Visit& visit) {
  const CheckedChunk& chunk = args.chunks[ptx::block_index()];
  const i64 chunk_end = ptx::ld_global<i64>(&chunk.end);
  i64 number = ptx::ld_global<i64>(&chunk.begin) + ptx::thread_index();
  const Position step(args, THREADS);
  Position position(args, number);
#pragma unroll 4
  for (; number < chunk_end; number += THREADS, position.advance(step, args.width)) visit(position, number);
}

__device__ __forceinline__ bool is_poison(const ElementD* p) {
  bool is = true;
#pragma unroll
  for (int i = 0; i < int(sizeof(ElementD)); ++i)
    is = ptx::ld_global<u8>(reinterpret_cast<const u8*>(p) + i) == POISON && is;
  return is;
}

/// By more than two right results may. NaN is like NaN alone.
__device__ __forceinline__ bool differ(const CheckArguments& args, double x, double y) {
  if (x == y || (x != x && y != y)) return false;
  const double smaller = absolute(x) < absolute(y) ? absolute(x) : absolute(y);
  return !(absolute(x - y) <= ptx::fma(args.relative, smaller, args.absolute));
}

__device__ __forceinline__ void scan(const CheckArguments& args) {
  i64 found[] = {0, NOTHING_FOUND, NOTHING_FOUND};  // as CheckedChunk has them
  for_each_position(args, [&](const Position& position, i64 number) {
    const ElementD* d = position.in_d(args);
    const i64 columns = args.n;
    if (position.column < columns) {
      const bool objects =
          args.accepted ? differ(args, load_exact(d), load_exact(position.in_accepted(args))) : is_poison(d);
      found[0] += objects;
      if (objects && found[1] == NOTHING_FOUND) found[1] = number;
    } else if (!is_poison(d) && found[2] == NOTHING_FOUND) {
      found[2] = number;
    }
  });
  reduce(found, [](int i, i64 x, i64 y) { return i == 0 ? x + y : x < y ? x : y; });
  if (ptx::thread_index() == 0) {
    CheckedChunk& chunk = args.chunks[ptx::block_index()];
    ptx::st_global<i64>(&chunk.found, found[0]);
    ptx::st_global<i64>(&chunk.first, found[1]);
    ptx::st_global<i64>(&chunk.written_outside, found[2]);
  }
}

template <typename Bits>
__device__ __forceinline__ void copy_bits(void* to, const void* from) {
  ptx::st_global<Bits>(to, ptx::ld_global<Bits>(from));
}
__device__ __forceinline__ void copy(ElementD* to, const ElementD* from) {
  if constexpr (sizeof(ElementD) == 1) copy_bits<u8>(to, from);
  if constexpr (sizeof(ElementD) == 2) copy_bits<u16>(to, from);
  if constexpr (sizeof(ElementD) == 4) copy_bits<u32>(to, from);
  if constexpr (sizeof(ElementD) == 8) copy_bits<i64>(to, from);
}

__device__ __forceinline__ void keep(const CheckArguments& args) {
  for_each_position(args, [&](const Position& position, i64) {
    const i64 columns = args.n;
    if (position.column < columns) copy(position.in_accepted(args), position.in_d(args));
  });
}

__device__ __forceinline__ void read(const CheckArguments& args, CheckedElement& element) {
  const i64 batch = ptx::ld_global<int>(&element.batch), row = ptx::ld_global<int>(&element.row),
            column = ptx::ld_global<int>(&element.column);
  const ElementD* d = static_cast<const ElementD*>(args.d) + (batch * args.stride_d + row * args.row_d + column);
  ptx::st_global<double>(&element.d, load_exact(d));
  if (!args.accepted) return;
  const ElementD* accepted = static_cast<const ElementD*>(args.accepted) + ((batch * args.m + row) * args.n + column);
  ptx::st_global<double>(&element.accepted, load_exact(accepted));
}

__device__ __forceinline__ void recompute(const CheckArguments& args, CheckedElement& element) {
  const i64 batch = ptx::ld_global<int>(&element.batch), row = ptx::ld_global<int>(&element.row),
            column = ptx::ld_global<int>(&element.column);
  const ElementA* a = static_cast<const ElementA*>(args.a) + (batch * args.stride_a + row * args.row_a);
  const ElementB* b = static_cast<const ElementB*>(args.b) + (batch * args.stride_b + column * args.column_b);
  double sums[] = {0, 0};  // of the products, of their absolute values
#pragma unroll 4
  for (i64 i = ptx::thread_index(); i < args.k; i += THREADS) {
    const double x = load_exact(a + i * args.k_a), y = load_exact(b + i * args.k_b);
    sums[0] = ptx::fma(x, y, sums[0]);
    sums[1] = ptx::fma(absolute(x), absolute(y), sums[1]);
  }
  reduce(sums, [](int, double x, double y) { return ptx::add(x, y); });
  if (ptx::thread_index() != 0) return;

  ElementCompute c = 0, bias = 0;
  if constexpr (READS_C)
    c = ElementCompute(
        load_exact(static_cast<const ElementC*>(args.c) + (batch * args.stride_c + row * args.row_c + column)));
  if constexpr (BIAS != Bias::none)
    bias = ElementCompute(load_exact(static_cast<const ElementC*>(args.bias) + (BIAS == Bias::along_m ? row : column)));
  const double scale_d = load_scale(args.scale_d);
  const Factors factors = factors_of(args);
  const EpilogueFunctor functor{args.scalars, ElementCompute(scale_d)};
  // A sum of integers wraps: its products, of 2^14 at most, and fewer than 2^31 of them, are exact in double precision.
  const auto sum = ElementCompute(INTEGERS ? Accumulator(u32(i64(sums[0]))) : Accumulator(sums[0]));
  ptx::st_global<double>(&element.products, absolute(double(factors.alpha)) * sums[1]);
  ptx::st_global<double>(&element.addends, absolute(double(value(args.scalars.beta)) * c) + absolute(bias));
  ptx::st_global<double>(&element.linear, functor.linear(sum, factors, functor.addend(c, bias)));
  ptx::st_global<double>(&element.scale, scale_d);
  ptx::st_global<double>(&element.value, functor(sum, factors, c, bias));
  read(args, element);
}

__device__ __forceinline__ void check(const CheckArguments& args) {
  if constexpr (DEPENDENT_LAUNCH) ptx::griddepcontrol_wait();
  if (args.task == CheckTask::recompute) {
    recompute(args, args.elements[ptx::block_index()]);
  } else if (args.task == CheckTask::read) {
    for (int i = ptx::thread_index(); i < args.element_count; i += THREADS) read(args, args.elements[i]);
  } else if (args.task == CheckTask::scan) {
    scan(args);
  } else {
    keep(args);
  }
}

}  // namespace jitgemm::device
