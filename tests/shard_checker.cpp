#include "shard_checker.hpp"

#include <algorithm>

#include "jit/arguments.hpp"

namespace jitgemm::test {

using namespace device;

std::string describe(const ShardedLaunch& launch) {
  const Decomposition& d = launch.decomposition;
  return std::string(launch.sharding == device::Sharding::gathered_a ? "gathered_a" : "scattered_d") +
         " ranks=" + std::to_string(launch.ranks) + " tiles=" + std::to_string(d.tiles_m) + "x" +
         std::to_string(d.tiles_n) + " k_blocks=" + std::to_string(d.k_blocks) + " ctas=" + std::to_string(d.ctas) +
         " group_m=" + std::to_string(launch.group_m) + " cluster=" + std::to_string(launch.cluster_m) + "x" +
         std::to_string(launch.cluster_n) + " consumers=" + std::to_string(launch.consumers) +
         (launch.ping_pong ? " ping_pong" : "") + " stages=" + std::to_string(launch.stages) +
         " resident=" + std::to_string(launch.resident);
}

namespace {

int places_of(const ShardedLaunch& launch) {
  KernelConfig config;
  config.cluster_m = launch.cluster_m;
  config.cluster_n = launch.cluster_n;
  config.warps = 4 * launch.consumers;
  LaunchShape shape;
  shape.decomposition = launch.decomposition;
  return places_of_shard(config, shape);
}

}  // namespace

TileIndex ShardChecker::tile_of(int rank, int tile) const {
  TileIndex index =
      shard_raster(tile, launch_->decomposition, launch_->group_m, launch_->sharding, rank, launch_->ranks);
  if (mistake_ == ShardMistake::own_shard_first) index.batch = (index.batch + launch_->ranks - 1) % launch_->ranks;
  if (mistake_ == ShardMistake::one_rank_rotates_apart && rank == 1) index.batch = mirrored(rank, index.batch);
  return index;
}

int ShardChecker::place_of(const TileIndex& tile, int block, int part) const {
  const int m = tile.m * launch_->cluster_m + block % launch_->cluster_m;
  const int n = tile.n * launch_->cluster_n + block / launch_->cluster_m;
  if (mistake_ == ShardMistake::flags_collide) part = 0;
  return place_at(m, n, launch_->decomposition.tiles_n * launch_->cluster_n, launch_->consumers, part);
}

int ShardChecker::mirrored(int rank, int shard) const { return (2 * rank - shard + launch_->ranks) % launch_->ranks; }

/// Of the flag of a tile that this rank has stored.
int ShardChecker::recipient_of(int rank, const TileIndex& tile) const {
  return mistake_ == ShardMistake::tells_another_rank && rank == 1 ? mirrored(rank, tile.batch) : tile.batch;
}

std::size_t ShardChecker::flag_of(int owner, int sender, int place) const {
  const int flags = launch_->ranks * places_;
  return std::size_t(owner) * std::size_t(flags) + std::size_t(flag_at(sender, places_, place));
}

void ShardChecker::begin(const ShardedLaunch& launch) {
  launch_ = &launch;
  places_ = places_of(launch);
  const Decomposition& d = launch.decomposition;
  begins_.assign(1, 0);
  items_.clear();
  for (int rank = 0; rank < launch.ranks; ++rank)
    for (int cta = 0; cta < d.ctas; ++cta) {
      const TileScheduler<Partition::whole_tiles> scheduler{d, cta};
      Work work;
      for (bool more = scheduler.first(work); more; more = scheduler.next(work))
        items_.push_back(tile_of(rank, work.tile));
      begins_.push_back(int(items_.size()));
    }
  steps_ += (long long)items_.size();
  const auto flags = std::size_t(launch.ranks) * std::size_t(launch.ranks) * std::size_t(places_);
  signalled_.assign(flags, 0);
  awaited_.assign(flags, 0);
}

/// Of a tile: each part is computed once, and its flags are this rank's to signal or to await.
std::string ShardChecker::follow(int rank, const TileIndex& tile) {
  const Decomposition& d = launch_->decomposition;
  if (tile.batch < 0 || tile.batch >= launch_->ranks || tile.m < 0 || tile.m >= d.tiles_m || tile.n < 0 ||
      tile.n >= d.tiles_n)
    return "a tile lies in a shard";
  for (int block = 0; block < blocks(); ++block)
    for (int part = 0; part < parts(); ++part) {
      const int place = place_of(tile, block, part);
      if (place < 0 || place >= places_) return "a flag is one of its shard's";
      const int what = (tile.batch * places_ + place_of(tile, block, 0)) * 4 + part;
      if (computed_[std::size_t(what)]++) return "a rank computes a tile once";
      if (launch_->sharding != device::Sharding::scattered_d) continue;
      if (tile.batch == rank) {
        for (int other = 0; other < launch_->ranks; ++other)
          if (other != rank && awaited_[flag_of(rank, other, place)]++) return "a flag is awaited once";
        continue;
      }
      int& flag = signalled_[flag_of(recipient_of(rank, tile), rank, place)];
      if (flag != 0) return "a flag is signalled once";
      flag = 1 + what;
    }
  return {};
}

std::string ShardChecker::broken_order_of(int rank, int cta) {
  const auto cluster = std::size_t(rank * launch_->decomposition.ctas + cta);
  int before = 0;
  for (int i = begins_[cluster]; i < begins_[cluster + 1]; ++i) {
    const TileIndex& tile = items_[std::size_t(i)];
    if (std::string broken = follow(rank, tile); !broken.empty()) return broken;
    // Which shard it is of those that this rank takes, or that come to it: its own is the first or the last.
    int turn = launch_->ranks - 1;
    if (launch_->sharding == device::Sharding::scattered_d) {
      if (tile.batch != rank) turn = std::min(turn - 1, before);
    } else {
      for (turn = 0; recipient_at(tile.batch, launch_->ranks, turn) != rank;) ++turn;
    }
    if (turn < before)
      return launch_->sharding == device::Sharding::scattered_d
                 ? "what others wait for comes before what waits for others"
                 : "shards of A are multiplied in the order in which they come";
    before = turn;
  }
  return {};
}

std::string ShardChecker::broken_order_of(int rank) {
  const auto all = std::size_t(launch_->ranks) * std::size_t(places_);
  computed_.assign(all * 4, 0);
  for (int cta = 0; cta < launch_->decomposition.ctas; ++cta)
    if (std::string broken = broken_order_of(rank, cta); !broken.empty()) return broken;
  const auto count = std::count(computed_.begin(), computed_.end(), 1);
  const long long expected =
      (long long)launch_->ranks * launch_->decomposition.tiles_m * launch_->decomposition.tiles_n * blocks() * parts();
  return count == expected ? "" : "a rank computes every tile of every shard";
}

/// No two ranks read from, or send to, the same one at a time.
std::string ShardChecker::broken_rotation() const {
  const Decomposition& d = launch_->decomposition;
  for (int index = 0; index < launch_->ranks; ++index) {
    unsigned seen = 0;
    for (int rank = 0; rank < launch_->ranks; ++rank) seen |= 1u << tile_of(rank, index * d.tiles_m * d.tiles_n).batch;
    if (seen != (1u << launch_->ranks) - 1) return "at a time each rank has another shard";
  }
  return {};
}

std::string ShardChecker::broken_order(const ShardedLaunch& launch) {
  begin(launch);
  for (int rank = 0; rank < launch.ranks; ++rank)
    if (std::string broken = broken_order_of(rank); !broken.empty()) return broken;
  if (std::string broken = broken_rotation(); !broken.empty()) return broken;
  if (launch.sharding != device::Sharding::scattered_d) return {};
  for (int owner = 0; owner < launch.ranks; ++owner)
    for (int sender = 0; sender < launch.ranks; ++sender)
      for (int place = 0; place < places_; ++place) {
        const std::size_t flag = flag_of(owner, sender, place);
        if ((signalled_[flag] != 0) != (awaited_[flag] != 0)) return "a flag that is awaited is signalled";
        if (signalled_[flag] == 0) continue;
        if ((signalled_[flag] - 1) / 4 / places_ != owner) return "a flag tells of the shard of the rank that has it";
      }
  return {};
}

}  // namespace jitgemm::test
