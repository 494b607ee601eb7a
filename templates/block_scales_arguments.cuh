// What a launch gives a kernel with scales of blocks besides. Plain C++, also compiled on the host.
#ifndef JITGEMM_BLOCK_SCALES_ARGUMENTS_CUH
#define JITGEMM_BLOCK_SCALES_ARGUMENTS_CUH
#include "arguments.cuh"

namespace jitgemm::device {

/// scale_a and scale_b are those of all of A and B, whichever part of D the launch computes.
struct BlockScalesArguments : Arguments {
  long long ld_scale_a, ld_scale_b;  // from 128 of k (1x128) or 128 rows, columns (128x128) to the next
  int first_a, first_b;              // A's row and B's column, of all, where this launch begins
};

}  // namespace jitgemm::device

#endif
