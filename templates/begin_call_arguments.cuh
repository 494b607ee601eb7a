// What a launch gives the kernel that begins a call of several ranks. Plain C++, also compiled on the host.
#ifndef JITGEMM_BEGIN_CALL_ARGUMENTS_CUH
#define JITGEMM_BEGIN_CALL_ARGUMENTS_CUH
#include "shard_arguments.cuh"

namespace jitgemm::device {

struct BeginCallArguments {
  int rank, ranks;
  unsigned* epoch;                    // of the call before, from here on of this one
  unsigned* last_use;                 // the epoch of the call that had this call's staging memory last
  const unsigned* finished;           // of each rank, the last call that is over there
  unsigned* finished_at[most_ranks];  // the same of this rank, at the others
  Patience patience;
};

}  // namespace jitgemm::device

#endif
