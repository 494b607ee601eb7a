#pragma once

#include <string>
#include <vector>

#include "jitgemm/types.hpp"

namespace jitgemm {

/// The macros that ptx/wgmma.cuh finds at the top of a kernel: which types it multiplies, and, since an asm statement
/// numbers its operands, what they are called for each of the widths, in columns.
std::string wgmma_macros(DataType a, DataType b, const std::vector<int>& widths);

}  // namespace jitgemm
