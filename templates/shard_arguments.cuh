// What a launch gives a kernel of a product that several ranks compute together besides; the order in which a rank
// takes its tiles, and the numbers of flags, each as one function for all who need it. Plain C++, also compiled on the
// host and in the tests, which follow all ranks by it.
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

/// The rank that gets a rank's shard of A as the `index`th, from 1 on: where it is the `index`th that is multiplied.
constexpr int recipient_at(int rank, int ranks, int index) { return (rank + index) % ranks; }

/// Tile `tile` of a rank's work: as raster() has it, but of the shard that comes then.
constexpr TileIndex shard_raster(int tile, const Decomposition& d, int group_m, Sharding sharding, int rank,
                                 int ranks) {
  TileIndex index = raster(tile, d, group_m);
  index.batch = shard_at(sharding, rank, ranks, index.batch);
  return index;
}

/// Of the flags that one rank has of another, that of a consumer's part of a thread block's tile of D: tile (m, n) of
/// those of a shard, of which `across` are in a row, in `parts`.
constexpr int place_at(int m, int n, int across, int parts, int part) { return (m * across + n) * parts + part; }

/// Among all flags that a rank has: what `sender` says of one of its `places`.
constexpr int flag_at(int sender, int places, int place) { return sender * places + place; }

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
