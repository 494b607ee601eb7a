// What a launch gives a kernel of groups besides. Plain C++, also compiled on the host.
#ifndef JITGEMM_GROUP_ARGUMENTS_CUH
#define JITGEMM_GROUP_ARGUMENTS_CUH
#include "custom_epilogue_arguments.cuh"
#include "group_schedule.cuh"

namespace jitgemm::device {

/// How often something was wrong, and with which group at last.
struct GroupFault {
  unsigned count, group;
};
struct GroupFaults {
  GroupFault rows;     // launches that found group_rows to go backwards or out of range
  GroupFault pointer;  // tiles that found no B at their group's pointer
};

/// The epilogue's operands are there in every kernel of groups.
struct GroupArguments : CustomEpilogueArguments {
  GroupDecomposition groups;
  const int* group_rows;  // where each group's rows end, or how many it has
  GroupFaults* faults;
  long long stride_scale_a, stride_scale_b;  // of vectors and of blocks, from one group's to the next's
};

}  // namespace jitgemm::device

#endif
