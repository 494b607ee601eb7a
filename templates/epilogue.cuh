// From accumulators to D: C and bias loaded, functor.cuh's values of them, converted and stored with bounds checks.
// The unit of work is a pair of neighbours in a row, which both kinds of tensor core leave in one thread.
#pragma once
#include "arguments.cuh"
#include "custom_epilogue.cuh"
#include "functor.cuh"
#include "ide.cuh"
#include "memory.cuh"
#include "pairs.cuh"
#include "ptx/global.cuh"
#include "scales.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

/// Of one tile of D. With SWAP_AB the kernel computes D^T = B^T A^T: rows and columns are those of D^T,
/// all else lies in memory as without.
struct Epilogue {
  static constexpr bool FINISHES = true;  // else sums are D as they are

  const Arguments& args;
  const Scales& scales;
  const WorkTile& tile;

  /// By which TMA stores the tile.
  __device__ __forceinline__ const TensorMap* map_of_d() const { return &args.map_d; }

  /// Elements from C's or D's first one to (row, column).
  static __device__ __forceinline__ i64 at(int row, int column, i64 ld) {
    return SWAP_AB ? column * ld + row : row * ld + column;
  }

  /// C's elements (row, column) and (row, column + 1), and the bias's; column is even. What lies outside of D means
  /// nothing, and nothing outside of C and of the bias is read, nor what the kernel does not have. INTERIOR promises
  /// that both are inside.
  template <bool INTERIOR, typename Staged>
  __device__ __forceinline__ void load_addends(int row, int column, ElementCompute (&its_c)[2],
                                               ElementCompute (&its_bias)[2], const Staged& staged) const {
    const ElementC* bias = static_cast<const ElementC*>(args.bias);
    const bool has_x = INTERIOR || (row < tile.row_end && column < tile.column_end);
    const bool has_y = INTERIOR || (row < tile.row_end && column + 1 < tile.column_end);
    if constexpr (BIAS != Bias::none && Staged::HAS_VECTORS) {
      staged(0, its_bias);
    } else if constexpr (BIAS == Bias::along_m) {
      its_bias[0] = its_bias[1] = load(bias + tile.row_inside<INTERIOR>(row));
    } else if constexpr (BIAS == Bias::along_n) {
      if (has_x) its_bias[0] = load(bias + column);
      if (has_y) its_bias[1] = load(bias + column + 1);
    }
    if constexpr (READS_C && Staged::HAS_MATRICES && sizeof(ElementC) == 2) {
      unpack(ElementC{}, staged(0), its_c[0], its_c[1]);
    } else if constexpr (READS_C) {
      const ElementC* c = static_cast<const ElementC*>(args.c) + batch_offset(tile.batch, args.stride_c);
      if (!SWAP_AB && ALIGN_C >= 2 * int(sizeof(ElementC)) && has_y) {
        load_pair(c + at(row, column, args.ldc), its_c[0], its_c[1]);
      } else {
        if (has_x) its_c[0] = load(c + at(row, column, args.ldc));
        if (has_y) its_c[1] = load(c + at(row, column + 1, args.ldc));
      }
    }
  }

  /// Turns the sums of (row, column) and (row, column + 1) into D's values, as load_addends() is told; with PAIRS those
  /// of both gates, with what they let through. `staged` has what need not be loaded here.
  template <bool INTERIOR, typename Staged = NotStaged>
  __device__ __forceinline__ void finish(int row, int column, const NeighbourFactors& factors, ElementCompute& x,
                                         ElementCompute& y, [[maybe_unused]] ElementCompute up_x = 0,
                                         [[maybe_unused]] ElementCompute up_y = 0, const Staged& staged = {}) const {
    ElementCompute c[2] = {}, bias[2] = {};
    load_addends<INTERIOR>(row, column, c, bias, staged);
    const EpilogueFunctor functor{args.scalars, scales.d};
    ElementCompute values[] = {x, y};
    if constexpr (HAS_CUSTOM_EPILOGUE) {
      for (int i = 0; i < 2; ++i) values[i] = functor.linear(values[i], factors.first[i], 0);
      ElementCompute up[] = {up_x, up_y};
      if constexpr (PAIRS)
        for (int i = 0; i < 2; ++i) up[i] = functor.linear(up[i], factors.ups[i], 0);
      apply_custom<INTERIOR, CustomEpilogue>(args, tile, row, column, values, up, staged);
      for (ElementCompute& value : values) value = functor.scaled(value);
    } else {
      functor(values, factors.first, c, bias);
    }
    x = values[0];
    y = values[1];
  }

  /// Brings what ROWS x COLUMNS elements are finished with on its way, by `threads` threads: the lines of C, and of
  /// what else is a matrix to the epilogue, into the L2, those of vectors into the L1. What lies outside is replaced by
  /// the nearest inside. BUT_STAGED: but for what is loaded ahead (operands_ahead.cuh).
  template <int ROWS, int COLUMNS, bool BUT_STAGED, typename Function = CustomEpilogue>
  static __device__ __forceinline__ void prefetch_operands(const Arguments& args, const WorkTile& tile, int row,
                                                           int column, u32 thread, u32 threads) {
    const auto prefetch_along = [&](const auto* vector, auto along_rows) {
      if constexpr (decltype(along_rows)::value)
        prefetch_vector<ROWS>(vector, row, tile.row_end, thread, threads);
      else
        prefetch_vector<COLUMNS>(vector, column, tile.column_end, thread, threads);
    };
    if constexpr (READS_C && !(BUT_STAGED && sizeof(ElementC) == 2))
      prefetch<ROWS, COLUMNS>(static_cast<const ElementC*>(args.c) + batch_offset(tile.batch, args.stride_c), args.ldc,
                              tile, row, column, thread, threads);
    if constexpr (BIAS != Bias::none && !BUT_STAGED)
      prefetch_along(static_cast<const ElementC*>(args.bias), Flag < BIAS == Bias::along_m > {});
    if constexpr (HAS_CUSTOM_EPILOGUE) {
      Function::for_each_input([&](auto operand, auto) {
        using Operand = decltype(operand);
        if constexpr (Operand::IS_MATRIX) {
          if constexpr (!Operand::template is_staged<BUT_STAGED>())
            prefetch<ROWS, COLUMNS>(Operand::at(args, 0, 0, tile.batch), Operand::of(args).ld, tile, row, column,
                                    thread, threads);
        } else if constexpr (!Operand::IS_SCALAR && !BUT_STAGED)
          prefetch_along(Operand::at(args, 0, 0, tile.batch), Flag<Operand::IS_ALONG_ROWS>{});
      });
    }
  }
  template <int ROWS, int COLUMNS, typename T>
  static __device__ __forceinline__ void prefetch(const T* matrix, i64 ld, const WorkTile& tile, int row, int column,
                                                  u32 thread, u32 threads) {
    constexpr int LINE = 128 / int(sizeof(T));  // elements
    constexpr int ROW_STEP = SWAP_AB ? LINE : 1, COLUMN_STEP = SWAP_AB ? 1 : LINE;
    constexpr int ACROSS = ceil_div(COLUMNS, COLUMN_STEP), LINES = ceil_div(ROWS, ROW_STEP) * ACROSS;
    for (int i = thread; i < LINES; i += threads)
      ptx::prefetch_l2(matrix + at(min_of(row + i / ACROSS * ROW_STEP, tile.row_end - 1),
                                   min_of(column + i % ACROSS * COLUMN_STEP, tile.column_end - 1), ld));
  }

  /// Finishes and stores D's elements (row, column) and (row, column + 1), as far as D has them; column is even.
  template <bool INTERIOR>
  __device__ __forceinline__ void store_pair(int row, int column, const NeighbourFactors& factors, ElementCompute x,
                                             ElementCompute y, ElementCompute up_x = 0, ElementCompute up_y = 0) const {
    finish<INTERIOR>(row, column, factors, x, y, up_x, up_y);
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
