// What a launch gives a kernel whose D gets scales of its own besides. Plain C++, also compiled on the host.
#ifndef JITGEMM_OWN_SCALES_ARGUMENTS_CUH
#define JITGEMM_OWN_SCALES_ARGUMENTS_CUH
#include "block_scales_arguments.cuh"

namespace jitgemm::device {

/// Those of A and B may be of blocks at once.
struct OwnScalesArguments : BlockScalesArguments {
  float* scales_d;        // of the first row and column of the launch
  long long ld_scales_d;  // from 128 columns to the next
};

}  // namespace jitgemm::device

#endif
