// What a launch gives the packing kernel. Plain C++, also compiled on the host, which fills it.
#ifndef JITGEMM_PACK_ARGUMENTS_CUH
#define JITGEMM_PACK_ARGUMENTS_CUH

namespace jitgemm::device {

/// An operand, `batch` matrices of `vectors` rows (columns) of `extent` adjacent elements, and its copy: the same rows,
/// or of a transposed operand the columns as rows, one every `row_chunks` times 16 bytes, of which `chunks` are
/// written. What the last of these has beyond the row means nothing. Where columns are pairs (INTERLEAVE_B), the chunks
/// of a row are those of one kind and of the other in turn.
struct PackedOperand {
  const void* source;
  void* packed;          // 256-byte aligned
  long long ld, stride;  // of the source, elements
  int extent, vectors, batch;
  int chunks, row_chunks;
  int blocks;    // thread blocks that copy it; 0: it is not packed
  int half = 0;  // of columns that are pairs, from the first half to the other
};

struct PackArguments {
  PackedOperand operands[2];  // A and B
};

}  // namespace jitgemm::device

#endif
