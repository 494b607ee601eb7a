// An epilogue's function of the caller's own: its operands loaded and stored around the call. The generated
// CustomEpilogue knows their names and types; where they lie comes with the launch. Rows and columns are those of D^T
// with SWAP_AB, as everywhere in the kernel; the function is told D's.
#pragma once
#include "arguments.cuh"
#include "custom_epilogue_arguments.cuh"
#include "functor.cuh"
#include "ide.cuh"
#include "memory.cuh"
#include "pairs.cuh"
#include "ptx/convert.cuh"
#include "work_tile.cuh"

namespace jitgemm::device {

/// Two neighbours in a row of the kernel's product, as far as D has them: (m, n) of D.
template <bool INTERIOR>
struct ElementPair {
  int m[2], n[2], batch, row_inside;
  bool has[2];

  __device__ __forceinline__ ElementPair(const WorkTile& tile, int row, int column)
      : batch(tile.batch), row_inside(tile.row_inside<INTERIOR>(row)) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      m[i] = SWAP_AB ? column + i : row;
      n[i] = SWAP_AB ? row : column + i;
      has[i] = INTERIOR || (row < tile.row_end && column + i < tile.column_end);
    }
  }
};

struct CustomEpilogue;  // generated, in a kernel that has one

enum class OperandShape { scalar, along_m, along_n, matrix };

/// The operand of this number.
template <int INDEX, OperandShape SHAPE, typename T>
struct EpilogueOperand {
  static constexpr bool IS_MATRIX = SHAPE == OperandShape::matrix, IS_SCALAR = SHAPE == OperandShape::scalar,
                        IS_ALONG_M = SHAPE == OperandShape::along_m,
                        IS_ALONG_ROWS = !IS_MATRIX && !IS_SCALAR && IS_ALONG_M != SWAP_AB,  // of the kernel
      IS_VECTOR = !IS_MATRIX && !IS_SCALAR, IS_ALONG_COLUMNS = IS_VECTOR && !IS_ALONG_ROWS;
  static constexpr int NUMBER = INDEX;
  using Element = T;

  /// Whether it comes as pairs where 16-bit matrices do.
  template <bool MATRICES_DO>
  static constexpr bool is_staged() {
    if constexpr (MATRICES_DO && IS_MATRIX) return sizeof(T) == 2;
    return false;
  }

  static __device__ __forceinline__ const EpilogueOperandArguments& of(const Arguments& args) {
    return static_cast<const CustomEpilogueArguments&>(args).operands[INDEX];
  }
  static __device__ __forceinline__ T* at(const Arguments& args, int m, int n, int batch) {
    const EpilogueOperandArguments& own = of(args);
    const i64 place = SHAPE == OperandShape::along_m ? m : SHAPE == OperandShape::along_n ? n : m * own.ld + n;
    return static_cast<T*>(own.data) + batch_offset(batch, own.stride) + place;
  }
  /// Whether both are there, and one access.
  template <bool INTERIOR>
  static __device__ __forceinline__ bool is_one_access(const Arguments& args, const ElementPair<INTERIOR>& pair) {
    return IS_MATRIX && !SWAP_AB && of(args).in_pairs && pair.has[1];
  }

  template <bool INTERIOR>
  static __device__ __forceinline__ void load(const Arguments& args, const ElementPair<INTERIOR>& pair,
                                              ElementCompute (&x)[2]) {
    if constexpr (SHAPE == OperandShape::scalar) {
      x[0] = x[1] = value(of(args).scalar);
    } else if constexpr (IS_ALONG_ROWS) {
      x[0] = x[1] = device::load<T>(at(args, pair.row_inside, pair.row_inside, pair.batch));
    } else if (is_one_access(args, pair)) {
      load_pair<T>(at(args, pair.m[0], pair.n[0], pair.batch), x[0], x[1]);
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (pair.has[i]) x[i] = device::load<T>(at(args, pair.m[i], pair.n[i], pair.batch));
    }
  }
  template <bool INTERIOR>
  static __device__ __forceinline__ void store(const Arguments& args, const ElementPair<INTERIOR>& pair,
                                               const ElementCompute (&x)[2]) {
    if (is_one_access(args, pair)) {
      store_pair<T>(at(args, pair.m[0], pair.n[0], pair.batch), x[0], x[1]);
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (pair.has[i]) device::store<T>(at(args, pair.m[i], pair.n[i], pair.batch), x[i]);
    }
  }
};

/// Replaces alpha * sum at (row, column) and (row, column + 1) of D by what the function makes of it, and with PAIRS of
/// `up`, and stores its outputs.
template <bool INTERIOR, typename Function, typename Staged>
__device__ __forceinline__ void apply_custom(const Arguments& args, const WorkTile& tile, int row, int column,
                                             ElementCompute (&x)[2], [[maybe_unused]] const ElementCompute (&up)[2],
                                             [[maybe_unused]] const Staged& staged) {
  const CustomEpilogueArguments& own = static_cast<const CustomEpilogueArguments&>(args);
  const ElementPair<INTERIOR> pair(tile, row, column);
  typename Function::Args in[2]{};
  typename Function::Out out[2]{};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    in[i].row = pair.m[i] + own.first_row;
    in[i].column = pair.n[i] + own.first_column;
    in[i].batch = pair.batch;
  }
  Function::for_each_input([&](auto operand, auto member) {
    using Operand = decltype(operand);
    ElementCompute values[2]{};
    if constexpr (Operand::template is_staged<Staged::HAS_MATRICES>())
      unpack(typename Operand::Element{}, staged(Operand::NUMBER), values[0], values[1]);
    else if constexpr (Operand::IS_VECTOR && Staged::HAS_VECTORS)
      staged(Operand::NUMBER, values);
    else
      Operand::load(args, pair, values);
    in[0].*member = values[0];
    in[1].*member = values[1];
  });
  // What does not exist, too: without branches, elements are computed side by side.
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if constexpr (PAIRS)
      x[i] = Function::call(x[i], up[i], in[i], out[i]);
    else
      x[i] = Function::call(x[i], in[i], out[i]);
  }
  Function::for_each_output([&](auto operand, auto member) {
    using Operand = decltype(operand);
    const ElementCompute values[2]{out[0].*member, out[1].*member};
    if constexpr (Operand::template is_staged<Staged::HAS_MATRICES>())
      staged(Operand::NUMBER) = ptx::pack(typename Operand::Element{}, values[0], values[1]);
    else
      Operand::store(args, pair, values);
  });
}

}  // namespace jitgemm::device
