// What a launch gives a kernel with scales of blocks, or of pairs of columns, besides. Plain C++, also compiled on the
// host.
#ifndef JITGEMM_BLOCK_SCALES_ARGUMENTS_CUH
#define JITGEMM_BLOCK_SCALES_ARGUMENTS_CUH
#include "arguments.cuh"
#include "custom_epilogue_arguments.cuh"
#include "group_arguments.cuh"

namespace jitgemm::device {

/// scale_a and scale_b are those of all of A and B, whichever part of D the launch computes.
struct BlockScalesLayout {
  long long ld_scale_a, ld_scale_b;  // from 128 of k (1x128) or 128 rows, columns (128x128) to the next
  int first_a, first_b;              // D's row and column, of all, where this launch begins
};

struct BlockScalesArguments : Arguments, BlockScalesLayout {};

/// Of a batch, whose matrices have scales of their own.
struct BatchBlockScalesArguments : BlockScalesArguments {
  long long stride_scale_a, stride_scale_b;  // from one matrix's to the next's
};

/// Of an epilogue of the caller's own, whose columns may be pairs: then vectors of scales need it, too.
struct EpilogueScalesArguments : CustomEpilogueArguments, BlockScalesLayout {
  long long stride_scale_a, stride_scale_b;  // of blocks, from one matrix's to the next's
  int half;                                  // of pairs that are halves: columns of B from one of a pair to the other
};

/// Of groups, which say how far their own are apart as they do of vectors.
struct GroupBlockScalesArguments : GroupArguments, BlockScalesLayout {};

}  // namespace jitgemm::device

#endif
