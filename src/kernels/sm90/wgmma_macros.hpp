#pragma once

#include <string>

#include "jitgemm/types.hpp"

namespace jitgemm {

/// The macros that ptx/wgmma.cuh finds at the top of a kernel: which types it multiplies, and, since an asm statement
/// numbers its operands, what they are called for a tile of block_n columns.
std::string wgmma_macros(DataType a, DataType b, int block_n);

}  // namespace jitgemm
