#pragma once

#include <cstddef>

#include "jitgemm/types.hpp"

namespace jitgemm {

// What the models of all families take for granted of a GPU.

inline constexpr std::size_t reserved_smem_bytes = 1024;  ///< of each block, by the driver
inline constexpr int sm_registers = 65536, sm_threads = 2048;

/// Of the L2, what operands may fill and still be there when the next blocks ask for them. No source is known; for the
/// effect see tools/results/NOTES.md, 5.
inline constexpr double l2_for_operands = 0.7;

/// An H200's data sheet: what it multiplies of a type, relative to its 990 TFLOP/s of 16-bit inputs. f64 on tensor
/// cores, f32 without.
constexpr double data_sheet_rate(DataType a) {
  switch (a) {
    case e4m3:
    case e5m2:
    case s8:
      return 2;  // 1980
    case tf32:
      return 0.5;  // 495
    case f64:
    case f32:
      return 0.07;  // 67
    default:
      return 1;
  }
}

}  // namespace jitgemm
