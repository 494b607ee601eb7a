// The vectors along the kernel's columns that an epilogue reads, bias or operands of the caller's own, for a warp that
// finishes a subtile of the Hopper loop's.
#pragma once
#include "custom_epilogue.cuh"
#include "epilogue.cuh"
#include "ide.cuh"
#include "layout_sm90.cuh"
#include "warp_vector.cuh"

namespace jitgemm::device {

constexpr int VECTORS = HAS_CUSTOM_EPILOGUE ? 8 : 1;  // by an operand's number; bias

/// Two neighbours' elements of each.
struct NeighbourVectors {
  ElementCompute of[VECTORS][2];
};

struct ColumnVectors {
  WarpVector<SUBTILE_COLUMNS> of[VECTORS];

  __device__ __forceinline__ void load(const Arguments& args, const WorkTile& tile, int column, u32 lane) {
    if constexpr (BIAS == Bias::along_n)
      of[0].template load<ElementC>([&](int i) { return static_cast<const ElementC*>(args.bias) + i; }, column,
                                    tile.column_end, lane);
    for_each_vector([&](auto operand) {
      using Operand = decltype(operand);
      of[Operand::NUMBER].template load<typename Operand::Element>(
          [&](int i) { return Operand::at(args, i, i, tile.batch); }, column, tile.column_end, lane);
    });
  }
  /// Of the `number`th 8 columns.
  __device__ __forceinline__ void get(int number, u32 lane, NeighbourVectors& neighbours) const {
    if constexpr (BIAS == Bias::along_n) of[0].template get<ElementC>(number, lane, neighbours.of[0]);
    for_each_vector([&](auto operand) {
      using Operand = decltype(operand);
      of[Operand::NUMBER].template get<typename Operand::Element>(number, lane, neighbours.of[Operand::NUMBER]);
    });
  }

 private:
  template <typename Visit, typename Function = CustomEpilogue>
  static __device__ __forceinline__ void for_each_vector(const Visit& visit) {
    if constexpr (HAS_CUSTOM_EPILOGUE)
      Function::for_each_input([&](auto operand, auto) {
        if constexpr (decltype(operand)::IS_ALONG_COLUMNS) visit(operand);
      });
  }
};

}  // namespace jitgemm::device
