#pragma once

#include "core/type_rules.hpp"

namespace jitgemm {

// What the models of all families take for granted of a GPU.

inline constexpr int sm_registers = 65536, sm_threads = 2048;

/// Of the L2, what operands may fill and still be there when the next blocks ask for them. No source is known; for the
/// effect see tools/results/NOTES.md, 5.
inline constexpr double l2_for_operands = 0.7;

/// An H200's data sheet: what it multiplies of a type, relative to its 990 TFLOP/s of 16-bit inputs. Tensor cores take
/// as many bytes of any shorter type at once; f64 on tensor cores, and f32 without, come to 67 TFLOP/s.
inline double data_sheet_rate(DataType a) { return is_simt(a) || bits_of(a) == 64 ? 0.07 : 16.0 / bits_of(a); }

}  // namespace jitgemm
