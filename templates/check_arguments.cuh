// What a launch gives the checking kernel, and what it leaves in device memory. Plain C++, also compiled on the host,
// which fills the one and reads the other.
#ifndef JITGEMM_CHECK_ARGUMENTS_CUH
#define JITGEMM_CHECK_ARGUMENTS_CUH
#include "arguments.cuh"

namespace jitgemm::device {

enum class CheckTask {
  recompute,  // each of `elements` from A and B, a block each; and what `read` does
  read,       // what D and the accepted one have at `elements`; one block
  scan,       // each chunk for elements that differ from the accepted ones or, without those, that nothing has written
  keep        // D becomes the accepted one, chunk by chunk
};

/// An element of D, and what it is computed from: fields that the host gives, then those that a kernel fills in.
struct CheckedElement {
  int batch, row, column;

  double products;  // the sum of |alpha a b|
  double addends;   // |beta c| + |bias|
  double linear;    // before the activation
  double scale;     // scale_d
  double value;     // before it is rounded to D's type

  double d, accepted;
};

/// D's memory is looked at by position, row by row of the whole batch, `width` elements a row: those of D and, where a
/// chunk's rows lie one after the other with a gap that belongs to nobody, that gap.
struct CheckedChunk {
  long long begin, end;  // positions that the host gives

  long long found;            // how many elements of D a scan objects to
  long long first;            // position of the first of them; NOTHING_FOUND
  long long written_outside;  // the first position in a gap that is no longer POISON
};

constexpr unsigned char POISON = 0xff;  // each byte of D's memory before a candidate; NaN, as an integer -1
constexpr long long NOTHING_FOUND = 0x7fffffffffffffff;

struct CheckArguments {
  const void *a, *b, *c, *bias, *d;                   // as Arguments has them
  const float *scale_a, *scale_b, *scale_d;           // null is 1
  long long row_a, k_a, column_b, k_b, row_c, row_d;  // elements from one row, column or step of k to the next
  long long stride_a, stride_b, stride_c, stride_d;   // elements from one matrix of the batch to the next
  int m, n, k;                                        // k = 0 when alpha = 0, A and B are not read then
  Scalar alpha, beta, slope;

  CheckTask task;
  void* accepted;  // D's elements without gaps; null: none yet
  CheckedElement* elements;
  int element_count;
  CheckedChunk* chunks;  // one a block
  long long width;       // of a row of positions
  // Two elements that are more than absolute + relative * (the smaller) apart differ.
  double relative, absolute;
};

}  // namespace jitgemm::device

#endif
