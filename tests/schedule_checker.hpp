#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "schedule.cuh"

namespace jitgemm::test {

using namespace device;

inline std::string describe(Partition partition, const Decomposition& d) {
  const char* names[] = {"one_tile", "whole_tiles", "split_k", "stream_k"};
  return std::string(names[int(partition)]) + " tiles=" + std::to_string(d.tiles_m) + "x" + std::to_string(d.tiles_n) +
         " k_blocks=" + std::to_string(d.k_blocks) + " ctas=" + std::to_string(d.ctas) +
         " stream_k_tiles=" + std::to_string(d.stream_k_tiles) + " splits=" + std::to_string(d.splits);
}

/// Follows every CTA of a decomposition. Keeps its buffers from one check to the next.
class ScheduleChecker {
 public:
  /// Empty, or the first rule that is broken.
  std::string broken_rule(Partition partition, const Decomposition& d) {
    switch (partition) {
      case Partition::one_tile:
        return check<Partition::one_tile>(d);
      case Partition::whole_tiles:
        return check<Partition::whole_tiles>(d);
      case Partition::split_k:
        return check<Partition::split_k>(d);
      case Partition::stream_k:
        return check<Partition::stream_k>(d);
    }
    return "unknown partition";
  }

  long long works() const { return works_; }  ///< followed so far

 private:
  struct Piece {
    Work work;
    bool operator<(const Piece& other) const {
      return work.tile != other.work.tile ? work.tile < other.work.tile : work.peer < other.work.peer;
    }
  };

  template <Partition PARTITION>
  std::string check(const Decomposition& d) {
    const int tiles = tile_count(d);
    const long long slots = slot_count(PARTITION, d);
    tile_done_.assign(std::size_t(tiles), 0);
    slot_used_.assign(std::size_t(slots), 0);
    pieces_.clear();
    const long long stream_k_blocks = (long long)d.stream_k_tiles * d.k_blocks;

    for (int cta = 0; cta < d.ctas; ++cta) {
      const TileScheduler<PARTITION> list{d, cta};
      bool whole_tiles_begun = false;
      long long k_blocks_of_split_tiles = 0;
      Work work;
      for (bool more = list.first(work); more; more = list.next(work)) {
        ++works_;
        if (work.tile < 0 || work.tile >= tiles) return "a tile exists";
        if (work.k_begin < 0 || work.k_end > d.k_blocks) return "k-blocks are within the tile";
        if (work.k_begin >= work.k_end && d.k_blocks > 0) return "work is not empty";
        if (work.peer < 0 || work.peer >= work.peers) return "a peer is one of the peers";
        if (work.tile < d.stream_k_tiles) {
          if (whole_tiles_begun) return "split tiles come first";
          k_blocks_of_split_tiles += work.k_end - work.k_begin;
        } else {
          whole_tiles_begun = true;
        }
        if (work.peers == 1) {
          if (work.k_begin != 0 || work.k_end != d.k_blocks) return "a tile with one peer is whole";
          if (tile_done_[std::size_t(work.tile)]++) return "a tile is computed once";
          continue;
        }
        if (work.tile >= split_tile_count(PARTITION, d)) return "a split tile has a counter";
        const long long slot = slot_of<PARTITION>(d, work.tile, work.peer);
        if (slot < 0 || slot >= slots) return "a slot lies in the workspace";
        if (slot_used_[std::size_t(slot)]++) return "a slot has one owner";
        pieces_.push_back({work});
      }
      if (PARTITION == Partition::stream_k && k_blocks_of_split_tiles != stream_k_blocks / d.ctas &&
          k_blocks_of_split_tiles != stream_k_blocks / d.ctas + 1) {
        return "CTAs share the split tiles evenly";
      }
    }

    std::sort(pieces_.begin(), pieces_.end());
    for (std::size_t i = 0; i < pieces_.size();) {
      const int tile = pieces_[i].work.tile, peers = pieces_[i].work.peers;
      int k = 0, peer = 0;
      for (; i < pieces_.size() && pieces_[i].work.tile == tile; ++i, ++peer) {
        const Work& work = pieces_[i].work;
        if (work.peers != peers) return "peers agree on how many they are";
        if (work.peer != peer) return "peers are numbered 0, 1, ...";
        if (work.k_begin != k) return "peers follow each other in k order without gap or overlap";
        k = work.k_end;
      }
      if (peer != peers || k != d.k_blocks) return "the peers of a tile cover it";
      if (tile_done_[std::size_t(tile)]++) return "a tile is computed once";
    }
    if (std::find(tile_done_.begin(), tile_done_.end(), 0) != tile_done_.end()) return "every tile is computed";
    return "";
  }

  std::vector<unsigned char> tile_done_, slot_used_;
  std::vector<Piece> pieces_;
  long long works_ = 0;
};

/// Empty, or what is wrong with the raster order of a grid.
inline std::string broken_raster(int tiles_m, int tiles_n, int batch, int group_m, std::vector<unsigned char>& seen) {
  const Decomposition d{tiles_m, tiles_n, batch, 1, 1, 0, 1, group_m};
  seen.assign(std::size_t(tile_count(d)), 0);
  for (int tile = 0; tile < tile_count(d); ++tile) {
    const TileIndex index = raster(tile, d, group_m);
    if (index.m < 0 || index.m >= tiles_m || index.n < 0 || index.n >= tiles_n) return "a tile lies in the grid";
    if (index.batch != tile / (tiles_m * tiles_n)) return "one matrix comes after the other";
    if (seen[std::size_t((index.batch * tiles_m + index.m) * tiles_n + index.n)]++) return "a tile comes once";
  }
  return "";
}

}  // namespace jitgemm::test
