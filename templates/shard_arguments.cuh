// What a launch gives a kernel of a product that several ranks compute together besides, and the order in which a rank
// takes its shards. Plain C++, also compiled on the host.
#ifndef JITGEMM_SHARD_ARGUMENTS_CUH
#define JITGEMM_SHARD_ARGUMENTS_CUH
#include "arguments.cuh"

namespace jitgemm::device {

constexpr int most_ranks = 8;  // of a node

/// Which shard the `index`th matrix of a rank's batch is. What it has itself comes first, then what the others send in
/// the order in which it comes, as each sends to the next rank first; sums that others wait for come before its own,
/// and first those that the others need first. So whoever waits has done all that others wait for.
constexpr int shard_at(Sharding sharding, int rank, int ranks, int index) {
  const int shard = sharding == Sharding::gathered_a ? rank - index : rank + 1 + index;
  return (shard + ranks) % ranks;
}

/// How long a kernel waits for other ranks, and where it says that it has waited in vain. In memory of the host.
struct Patience {
  struct Report {
    unsigned state;  // 0: all is well; else no wait makes sense any more
    unsigned rank, epoch;
  };
  enum : unsigned { well, lost, aborted };

  unsigned long long nanoseconds;  // 0: for ever
  Report* report;
};

/// Calls are numbered by epochs, which all ranks count alike in memory, so that graphs are replayed. A flag has the
/// epoch of what is there; none is ever reset.
struct ShardArguments : Arguments {
  TensorMap maps[most_ranks];  // gathered_a: of A's own shard, one; scattered_d: of where each shard's sums are stored
  int rank, ranks;
  const unsigned* epoch;  // of this call
  // Of each rank, whether what it sends is there: its shard of A, or what it adds to each place of D's shard.
  const unsigned* arrived;
  int places;  // of a shard: tiles, times the consumers that each has
  // scattered_d: sums of the other ranks' shards, as D's type, one shard after the other: here, and where each rank
  // gets them, with its `arrived` of this rank.
  const void* sent;
  void* sent_to[most_ranks];
  unsigned* arrived_at[most_ranks];
  const void* received;  // what each rank adds to D's shard
  long long ld_staged, stride_staged;
  Patience patience;
};

}  // namespace jitgemm::device

#endif
