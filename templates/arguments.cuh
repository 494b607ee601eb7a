// What a launch gives the kernel: one struct, passed by value. Plain C++, also compiled on the host, which fills it.
#ifndef JITGEMM_ARGUMENTS_CUH
#define JITGEMM_ARGUMENTS_CUH
#include "schedule.cuh"
#include "types.cuh"

namespace jitgemm::device {

/// The hardware's 128-byte description of a matrix and a box in it (cuTensorMapEncodeTiled).
struct alignas(64) TensorMap {
  unsigned char opaque[128];
};

/// Of ElementCompute.
union Scalar {
  float f32;
  double f64;
  int s32;
};

struct Arguments {
  // Kernels read their parameters through a cache of 64-byte lines, which fetches 256 bytes at a time; of the first 256
  // the driver has 64. So what finds the first copies fills the first line, and what is read later by every kernel
  // follows within 192 bytes: on an H100 each line more before the first copy took 60 ns, one beyond the 256 between
  // two tiles 170 (tools/results/NOTES.md, 56).
  bool holds_next_back;  // the next launch on the stream starts when blocks of this one have ended
  // Of kernels with CLUSTER_AT_LAUNCH: 2^bits blocks along M and N, and a bit for each block of a cluster's first row.
  unsigned char cluster_m_bits, cluster_n_bits, cluster_row;
  Decomposition decomposition;
  Scalars<Scalar> scalars;
  int m, n, k;  // k = 0 when alpha = 0, A and B are not read then

  TensorMap map_a, map_b, map_d;  // of the sm90 main loop; map_d only when D can be stored by TMA

  const void* a;
  const void* b;
  const void* c;  // read only by kernels with READS_C
  void* d;
  const void* bias;                          // read only by kernels with a BIAS
  const float *scale_a, *scale_b, *scale_d;  // of kernels with HAS_SCALES; null is 1
  long long lda, ldb, ldc, ldd;              // elements
  void* partials;                            // slots of split tiles, see fixup.cuh
  unsigned*
      counters;  // one per split tile and consumer group, or one of fetched tiles; zero before and after the launch
  long long stride_a, stride_b, stride_c, stride_d;  // elements from one matrix of the batch to the next
};
static_assert(4 + sizeof(Decomposition) + sizeof(Scalars<Scalar>) + 3 * sizeof(int) <= 192,
              "what every kernel reads is within 256 bytes of parameters, of which the driver has 64");

}  // namespace jitgemm::device

#endif
