// The vectors that a subtile of the Hopper loop's is finished with: scales of A and B, bias, operands of the caller's
// own. Of one along the kernel's rows a thread has its rows' elements, of one along the columns a warp has them all.
#pragma once
#include "custom_epilogue.cuh"
#include "epilogue.cuh"
#include "ide.cuh"
#include "layout_sm90.cuh"
#include "memory.cuh"
#include "pairs.cuh"
#include "scales.cuh"
#include "warp_vector.cuh"

namespace jitgemm::device {

constexpr int VECTORS = HAS_CUSTOM_EPILOGUE ? 8 : 1;  // by an operand's number; bias

/// What two neighbours in a row are finished with: an element of each vector, of those along rows the same twice, and
/// the scales.
struct NeighbourVectors {
  ElementCompute of[VECTORS][2];
  ElementCompute scale_a, scales_b[2];
  ElementCompute ups[2];  // as find_factors() is told
};

struct SubtileVectors {
  static constexpr int HALVES = SubtileFragment::HALVES;
  using Columns = WarpVector<SUBTILE_COLUMNS>;

  ElementCompute rows[VECTORS][HALVES];
  Columns columns[VECTORS];
  ElementCompute scales_a[HALVES], ups_a[ROW_FOLD == 2 ? HALVES : 1];
  Columns scales_b[COLUMN_FOLD];  // of B's columns of each kind

  /// Of the subtile from (row, column) on. What lies outside of D is replaced by the nearest inside.
  __device__ __forceinline__ void load(const Arguments& args, const WorkTile& tile, int row, int column, u32 warp,
                                       u32 lane) {
    const SubtileFragment fragment(warp, lane);
    const int half_of_b = half_of_pairs(args);
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      const int place = tile.row_inside<false>(row + fragment.row_of(0, half));
      if constexpr (SCALING_A == Scaling::vector)
        load_scale<ROW_FOLD == 2>(scales_of_a(args, tile), place, half_of_b, scales_a[half],
                                  ups_a[ROW_FOLD == 2 ? half : 0]);
      if constexpr (BIAS == Bias::along_m)
        rows[0][half] = device::load(static_cast<const ElementC*>(args.bias) + place);
      for_each_vector<true>([&](auto operand) {
        using Operand = decltype(operand);
        rows[Operand::NUMBER][half] =
            device::load<typename Operand::Element>(Operand::at(args, place, place, tile.batch));
      });
    }
    if constexpr (SCALING_B == Scaling::vector)
#pragma unroll
      for (int kind = 0; kind < COLUMN_FOLD; ++kind)
        load_columns<float>(
            scales_b[kind],
            [&](int i) { return scales_of_b(args, tile) + (COLUMN_FOLD == 2 ? place_of_pair(i, kind, half_of_b) : i); },
            tile, column, lane);
    if constexpr (BIAS == Bias::along_n)
      load_columns<ElementC>(
          columns[0], [&](int i) { return static_cast<const ElementC*>(args.bias) + i; }, tile, column, lane);
    for_each_vector<false>([&](auto operand) {
      using Operand = decltype(operand);
      load_columns<typename Operand::Element>(
          columns[Operand::NUMBER], [&](int i) { return Operand::at(args, i, i, tile.batch); }, tile, column, lane);
    });
  }

  /// Of the `number`th 8 columns.
  __device__ __forceinline__ void get_columns(const Scales& scales, int number, u32 lane,
                                              NeighbourVectors& neighbours) const {
    if constexpr (SCALING_B == Scaling::vector) {
      scales_b[0].template get<float>(number, lane, neighbours.scales_b);
      if constexpr (COLUMN_FOLD == 2) scales_b[1].template get<float>(number, lane, neighbours.ups);
    } else {
      neighbours.scales_b[0] = neighbours.scales_b[1] = scales.b;
      if constexpr (COLUMN_FOLD == 2) neighbours.ups[0] = neighbours.ups[1] = scales.b;
    }
    if constexpr (BIAS == Bias::along_n) columns[0].template get<ElementC>(number, lane, neighbours.of[0]);
    for_each_vector<false>([&](auto operand) {
      using Operand = decltype(operand);
      columns[Operand::NUMBER].template get<typename Operand::Element>(number, lane, neighbours.of[Operand::NUMBER]);
    });
  }
  /// Of the upper or lower half of each 16 rows.
  __device__ __forceinline__ void get_rows(const Scales& scales, int half, NeighbourVectors& neighbours) const {
    constexpr bool IS_VECTOR = SCALING_A == Scaling::vector;
    neighbours.scale_a = IS_VECTOR ? scales_a[half] : scales.a;
    if constexpr (ROW_FOLD == 2) neighbours.ups[0] = neighbours.ups[1] = IS_VECTOR ? ups_a[half] : scales.a;
    if constexpr (BIAS == Bias::along_m) neighbours.of[0][0] = neighbours.of[0][1] = rows[0][half];
    for_each_vector<true>([&](auto operand) {
      constexpr int NUMBER = decltype(operand)::NUMBER;
      neighbours.of[NUMBER][0] = neighbours.of[NUMBER][1] = rows[NUMBER][half];
    });
  }

  /// A thread's, of one subtile.
  template <typename Function = CustomEpilogue>
  static constexpr int registers() {
    int count = (SCALING_A == Scaling::vector) * HALVES * ROW_FOLD + (BIAS == Bias::along_m) * HALVES +
                (SCALING_B == Scaling::vector) * COLUMN_FOLD * Columns::registers<float>() +
                (BIAS == Bias::along_n) * Columns::registers<ElementC>();
    if constexpr (HAS_CUSTOM_EPILOGUE)
      Function::for_each_input([&](auto operand, auto) {
        using Operand = decltype(operand);
        if constexpr (Operand::IS_ALONG_ROWS) count += HALVES;
        if constexpr (Operand::IS_ALONG_COLUMNS) count += Columns::registers<typename Operand::Element>();
      });
    return count;
  }

 private:
  template <typename T, typename At>
  static __device__ __forceinline__ void load_columns(Columns& columns, const At& at, const WorkTile& tile, int column,
                                                      u32 lane) {
    columns.template load<T>(at, column, tile.column_end, lane);
  }
  template <bool ALONG_ROWS, typename Visit, typename Function = CustomEpilogue>
  static __device__ __forceinline__ void for_each_vector(const Visit& visit) {
    if constexpr (HAS_CUSTOM_EPILOGUE)
      Function::for_each_input([&](auto operand, auto) {
        using Operand = decltype(operand);
        if constexpr (ALONG_ROWS ? Operand::IS_ALONG_ROWS : Operand::IS_ALONG_COLUMNS) visit(operand);
      });
  }
};

}  // namespace jitgemm::device
