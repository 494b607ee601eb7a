#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/kernel_interface.hpp"

namespace jitgemm::test {

/// A product of a node's ranks, as its kernels deal it out: of one rank, as all have the same.
struct ShardedLaunch {
  device::Sharding sharding = device::Sharding::scattered_d;
  int ranks = 2;
  device::Decomposition decomposition;  ///< of clusters; its batch is the ranks
  int group_m = 0, cluster_m = 1, cluster_n = 1;
  int consumers = 1;
  bool ping_pong = false;
  int stages = 3;
  int resident = 0;  ///< clusters at a time; 0: all of the grid
};
std::string describe(const ShardedLaunch& launch);

/// What to get wrong, to see that it is found.
enum class ShardMistake {
  none,
  own_shard_first,         // that others' sums are added to
  one_rank_rotates_apart,  // the other way round
  tells_another_rank,      // one, of its tiles
  flags_collide,           // of two consumers
  waits_before_it_tells,   // a consumer, of its last tile for another rank
  tells_unasked,           // before the mover has taken the tile before
};

/// Follows every thread block of every rank through all of its tiles, by the functions that give the kernels their
/// order and flags (templates/shard_arguments.cuh, schedule.cuh). Keeps its buffers from one check to the next.
class ShardChecker {
 public:
  explicit ShardChecker(ShardMistake mistake = ShardMistake::none) : mistake_(mistake) {}

  // Empty, or the first rule that is broken.
  /// Every tile of every shard is computed once by each rank; every flag is signalled once, and awaited by the one that
  /// adds what it tells of; tiles and shards come in an order in which nobody waits longer than need be.
  std::string broken_order(const ShardedLaunch& launch);
  /// Every wait ends, in whichever order producers, consumers and movers run. Each goes on as soon as what it waits for
  /// has been told once, and nothing that was told is taken back, so that how far they all come does not depend on who
  /// runs first: one order proves it for all. Of a launch whose order is not broken.
  std::string broken_progress(const ShardedLaunch& launch);

  long long steps() const { return steps_; }  ///< followed so far, of tiles and of agents

 private:
  struct Consumer {
    int item = 0, step = 0;   // of its next k-block; items are the cluster's tiles
    bool multiplied = false;  // all k-blocks of the item
    bool has_stored = false;  // a tile that the mover does not know of
    int released = 0;         // of the k-blocks of the cluster's work, up to here it needs no stage any more
    int issued = 0;           // items whose products are on their way
    int told = 0, taken = 0;  // tiles for other ranks: by the consumer, and by the mover
    int mover_item = 0;
  };
  struct Block {
    int loaded = 0;  // k-blocks
    std::array<Consumer, 3> consumers;
  };

  void begin(const ShardedLaunch& launch);
  device::TileIndex tile_of(int rank, int tile) const;
  int place_of(const device::TileIndex& tile, int block, int part) const;
  int parts() const { return launch_->ping_pong ? 1 : launch_->consumers; }
  int blocks() const { return launch_->cluster_m * launch_->cluster_n; }
  int mirrored(int rank, int shard) const;
  int recipient_of(int rank, const device::TileIndex& tile) const;
  std::size_t flag_of(int owner, int sender, int place) const;

  std::string broken_order_of(int rank);
  std::string broken_order_of(int rank, int cta);
  std::string broken_rotation() const;
  std::string follow(int rank, const device::TileIndex& tile);

  // Of one rank and cluster, at a block: whether anything happened.
  bool run(int rank, int cta);
  bool produce(int count, Block* cluster, int block);
  bool consume(int rank, const device::TileIndex* items, int count, Block* cluster, int block, int number);
  bool multiply(Block* cluster, int block, int number);
  bool tell(Consumer& consumer);
  bool finish(int rank, const device::TileIndex& tile, int block, int number, Consumer& consumer);
  bool move(int rank, const device::TileIndex* items, int count, Block& block, int at, int number);
  bool has_ended(int rank, int cta) const;
  bool share(int block, int other) const;
  int next_item(int item, int number) const;
  std::string who_waits() const;

  ShardMistake mistake_;
  const ShardedLaunch* launch_ = nullptr;
  int places_ = 0;                        // of a shard
  std::vector<int> begins_;               // where the tiles of each rank's clusters begin
  std::vector<device::TileIndex> items_;  // those tiles
  std::vector<unsigned char> computed_, awaited_;
  std::vector<int> signalled_;  // of each flag, 1 + what it tells of
  std::vector<Block> blocks_;   // of each rank's clusters
  std::string broken_;          // by an agent
  long long steps_ = 0;
};

}  // namespace jitgemm::test
