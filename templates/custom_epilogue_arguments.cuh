// What a launch gives a kernel with an epilogue of the caller's own besides. Plain C++, also compiled on the host.
#ifndef JITGEMM_CUSTOM_EPILOGUE_ARGUMENTS_CUH
#define JITGEMM_CUSTOM_EPILOGUE_ARGUMENTS_CUH
#include "arguments.cuh"

namespace jitgemm::device {

/// An operand of the function.
struct EpilogueOperandArguments {
  void* data;            // null of a scalar; inputs are only read
  long long ld, stride;  // elements from one row to the next, from one of the batch to the next
  Scalar scalar;
  int in_pairs;  // of a matrix: two neighbours, the first of an even column, are aligned to both
};

struct CustomEpilogueArguments : Arguments {
  EpilogueOperandArguments operands[8];  // in their order
  int first_row, first_column;           // of all of D, where this launch begins
};

}  // namespace jitgemm::device

#endif
