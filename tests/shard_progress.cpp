// How far producers, consumers and movers of all ranks come (shards_sm90.cuh, mainloop_sm90.cuh).
#include <algorithm>

#include "shard_checker.hpp"

namespace jitgemm::test {

using namespace device;

namespace {

constexpr int tell_after = 4;  // k-blocks into a tile

}  // namespace

/// Whether two blocks of a cluster load for each other.
bool ShardChecker::share(int block, int other) const {
  return block % launch_->cluster_m == other % launch_->cluster_m ||
         block / launch_->cluster_m == other / launch_->cluster_m;
}

/// The first item from this one on that a consumer multiplies.
int ShardChecker::next_item(int item, int number) const {
  return launch_->ping_pong && item % 2 != number ? item + 1 : item;
}

bool ShardChecker::produce(int count, Block* cluster, int block) {
  const int all = count * launch_->decomposition.k_blocks;
  int& loaded = cluster[block].loaded;
  const int before = loaded;
  int free = all;  // k-blocks that have a stage
  for (int other = 0; other < blocks(); ++other)
    if (share(block, other))
      for (int number = 0; number < launch_->consumers; ++number)
        free = std::min(free, cluster[other].consumers[std::size_t(number)].released + launch_->stages);
  loaded = std::max(loaded, free);
  steps_ += loaded - before;
  return loaded > before;
}

/// Of a tile that is stored, once the mover has taken the one before.
bool ShardChecker::tell(Consumer& consumer) {
  if (!consumer.has_stored) return true;
  if (consumer.taken < consumer.told && mistake_ != ShardMistake::tells_unasked) return false;
  consumer.has_stored = false;
  ++consumer.told;
  if (consumer.told - consumer.taken > 1) broken_ = "nobody is told of two tiles at once";
  return true;
}

/// Multiplies what there is of an item; true at its end.
bool ShardChecker::multiply(Block* cluster, int block, int number) {
  Consumer& consumer = cluster[block].consumers[std::size_t(number)];
  const int k_blocks = launch_->decomposition.k_blocks, first = consumer.item * k_blocks;
  if (consumer.step == 0 && launch_->ping_pong) {
    const int turns = consumer.item / 2 + (number == 0 ? 0 : 1);
    if (cluster[block].consumers[std::size_t(1 - number)].issued < turns) return false;
  }
  int there = first + k_blocks;
  for (int other = 0; other < blocks(); ++other)
    if (share(block, other)) there = std::min(there, cluster[other].loaded);
  while (consumer.step < k_blocks && first + consumer.step < there) {
    if (consumer.step == tell_after && !tell(consumer)) return false;
    if (consumer.step > 0) consumer.released = first + consumer.step;
    ++consumer.step;
    ++steps_;
  }
  if (consumer.step < k_blocks) return false;
  ++consumer.issued;
  consumer.released = next_item(consumer.item + 1, number) * k_blocks;
  consumer.multiplied = true;
  return true;
}

/// Stores the item for another rank, or adds what others have of it; false while it waits.
bool ShardChecker::finish(int rank, const TileIndex& tile, int block, int number, Consumer& consumer) {
  const bool tells_first = mistake_ != ShardMistake::waits_before_it_tells || tile.batch != rank;
  if (launch_->sharding != device::Sharding::scattered_d) return true;
  if (tells_first && !tell(consumer)) return false;
  if (tile.batch != rank) {
    consumer.has_stored = true;
    return true;
  }
  const int place = place_of(tile, block, launch_->ping_pong ? 0 : number);
  for (int other = 0; other < launch_->ranks; ++other)
    if (other != rank && signalled_[flag_of(rank, other, place)] == 0) return false;
  return true;
}

bool ShardChecker::consume(int rank, const TileIndex* items, int count, Block* cluster, int block, int number) {
  Consumer& consumer = cluster[block].consumers[std::size_t(number)];
  const Consumer before = consumer;
  while (consumer.item < count) {
    if (!consumer.multiplied && !multiply(cluster, block, number)) break;
    if (!finish(rank, items[consumer.item], block, number, consumer)) break;
    consumer.item = next_item(consumer.item + 1, number);
    consumer.step = 0;
    consumer.multiplied = false;
  }
  if (consumer.item >= count) tell(consumer);
  return consumer.item != before.item || consumer.step != before.step || consumer.told != before.told ||
         consumer.multiplied != before.multiplied;
}

bool ShardChecker::move(int rank, const TileIndex* items, int count, Block& its_block, int block, int number) {
  Consumer& consumer = its_block.consumers[std::size_t(number)];
  const int before = consumer.mover_item;
  for (int& item = consumer.mover_item; item < count; item = next_item(item + 1, number)) {
    const TileIndex& tile = items[item];
    if (tile.batch == rank) continue;
    if (consumer.told == consumer.taken) break;
    ++consumer.taken;
    ++steps_;
    signalled_[flag_of(recipient_of(rank, tile), rank, place_of(tile, block, launch_->ping_pong ? 0 : number))] = 1;
  }
  return consumer.mover_item != before;
}

bool ShardChecker::run(int rank, int cta) {
  const auto cluster = std::size_t(rank * launch_->decomposition.ctas + cta);
  const TileIndex* const items = items_.data() + begins_[cluster];
  const int count = begins_[cluster + 1] - begins_[cluster];
  Block* const its_blocks = &blocks_[cluster * std::size_t(blocks())];
  bool any = false;
  for (bool more = true; more && broken_.empty();) {
    more = false;
    for (int block = 0; block < blocks(); ++block) {
      more |= produce(count, its_blocks, block);
      for (int number = 0; number < launch_->consumers; ++number)
        more |= consume(rank, items, count, its_blocks, block, number);
    }
    if (!more &&
        launch_->sharding == device::Sharding::scattered_d)  // movers are late, so that tellers are as early as can be
      for (int block = 0; block < blocks(); ++block)
        for (int number = 0; number < launch_->consumers; ++number)
          more |= move(rank, items, count, its_blocks[block], block, number);
    any |= more;
  }
  return any;
}

bool ShardChecker::has_ended(int rank, int cta) const {
  const auto cluster = std::size_t(rank * launch_->decomposition.ctas + cta);
  const int count = begins_[cluster + 1] - begins_[cluster];
  for (int block = 0; block < blocks(); ++block)
    for (int number = 0; number < launch_->consumers; ++number) {
      const Consumer& consumer =
          blocks_[cluster * std::size_t(blocks()) + std::size_t(block)].consumers[std::size_t(number)];
      if (consumer.item < count || consumer.has_stored) return false;
      if (launch_->sharding == device::Sharding::scattered_d && consumer.mover_item < count) return false;
    }
  return true;
}

std::string ShardChecker::who_waits() const {
  for (int rank = 0; rank < launch_->ranks; ++rank)
    for (int cta = 0; cta < launch_->decomposition.ctas; ++cta)
      if (!has_ended(rank, cta))
        return "every wait ends, but that of rank " + std::to_string(rank) + ", CTA " + std::to_string(cta);
  return {};
}

std::string ShardChecker::broken_progress(const ShardedLaunch& launch) {
  begin(launch);
  broken_.clear();
  const int ctas = launch.decomposition.ctas;
  const int resident = launch.resident == 0 ? ctas : launch.resident;
  blocks_.assign(std::size_t(launch.ranks * ctas * blocks()), {});
  for (Block& block : blocks_) {
    for (int number = 0; number < launch.consumers; ++number) {
      Consumer& consumer = block.consumers[std::size_t(number)];
      consumer.item = consumer.mover_item = next_item(0, number);
      consumer.released = consumer.item * launch.decomposition.k_blocks;
    }
  }
  for (bool more = true; more;) {
    more = false;
    for (int rank = 0; rank < launch.ranks; ++rank) {
      int running = 0;
      for (int cta = 0; cta < ctas && running < resident; ++cta) {
        if (has_ended(rank, cta)) continue;
        more |= run(rank, cta);
        running += !has_ended(rank, cta);
      }
    }
    if (!broken_.empty()) return broken_;
  }
  return who_waits();
}

}  // namespace jitgemm::test
