#pragma once

#include <string>
#include <vector>

#include "jitgemm/types.hpp"

namespace jitgemm {

/// The macros that ptx/wgmma.cuh finds at the top of a kernel: which types it multiplies, and, since an asm statement
/// numbers its operands, what they are called for each of the widths, in columns. `reads_d`: whether d is an
/// operand that is read, too.
std::string wgmma_macros(DataType a, DataType b, const std::vector<int>& widths, bool reads_d);

}  // namespace jitgemm
