// What a launch gives a kernel of groups besides. Plain C++, also compiled on the host.
#ifndef JITGEMM_GROUP_ARGUMENTS_CUH
#define JITGEMM_GROUP_ARGUMENTS_CUH
#include "custom_epilogue_arguments.cuh"
#include "group_schedule.cuh"

namespace jitgemm::device {

/// The epilogue's operands are there in every kernel of groups.
struct GroupArguments : CustomEpilogueArguments {
  GroupDecomposition groups;
  const int* group_rows;  // where each group's rows end, or how many it has
  // Counts of the launches that have found what is out of range there, and of the tiles that have found a pointer to B
  // to be none; then the group that each was last of.
  unsigned* broken_groups;
  long long stride_scale_a, stride_scale_b;  // of vectors and of blocks, from one group's to the next's
};

}  // namespace jitgemm::device

#endif
