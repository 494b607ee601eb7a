// What a launch gives kernels that finish sums in memory besides these. Plain C++, also compiled on the host.
#ifndef JITGEMM_FINISH_SUMS_ARGUMENTS_CUH
#define JITGEMM_FINISH_SUMS_ARGUMENTS_CUH
#include "arguments.cuh"

namespace jitgemm::device {

struct FinishSumsArguments {
  const void *c, *bias;  // as Arguments has them
  void* d;
  const float* scale_d;  // null is 1
  long long ldc, ldd;    // elements
  int m, n;
  Scalars<Scalar> scalars;
};

}  // namespace jitgemm::device

#endif
