// What a launch gives the kernel that adds up matrices and applies an epilogue to their sum. Plain C++, also compiled
// on the host, which fills it.
#ifndef JITGEMM_SUM_EPILOGUE_ARGUMENTS_CUH
#define JITGEMM_SUM_EPILOGUE_ARGUMENTS_CUH
#include "finish_sums_arguments.cuh"

namespace jitgemm::device {

constexpr int MOST_SOURCES = 8;

struct SumEpilogueArguments : FinishSumsArguments {
  const void* sources[MOST_SOURCES];  // of ElementC, M x N each, added in this order; D may be the first
  int source_count;                   // at least 1
  long long ld_sources;               // elements
};

}  // namespace jitgemm::device

#endif
