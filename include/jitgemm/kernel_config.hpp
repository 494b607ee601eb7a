#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "jitgemm/export.hpp"
#include "jitgemm/types.hpp"

namespace jitgemm {

/// How a thread block multiplies its tiles.
enum class MainLoop : std::uint8_t {
  sm80,  ///< cp.async, ldmatrix, mma.sync: every GPU since sm_80
  sm90,  ///< TMA, wgmma, producer and consumer warpgroups: sm_90a
};

/// How the tiles of D, and the k-blocks of each tile, are dealt out to the CTAs (thread blocks) of the grid.
enum class Schedule : std::uint8_t {
  data_parallel,      ///< one CTA a tile
  persistent,         ///< `grid` CTAs, each takes every grid-th tile, or of groups whichever is next
  split_k,            ///< each tile's k-blocks are cut into `splits` parts
  stream_k,           ///< all k-blocks of all tiles are cut into `grid` equal ranges
  stream_k_one_tile,  ///< stream_k over the tiles of the last partial wave, whole tiles for the rest
  stream_k_two_tile,  ///< stream_k over the last partial wave and one full wave, whole tiles for the rest
};

/// How a problem is computed. Prints as one line that parse_kernel_config() reads back.
struct KernelConfig {
  MainLoop main_loop = MainLoop::sm80;
  int block_m = 128, block_n = 128, block_k = 32;  ///< tile of D, and the depth of one k-block
  int group_m = 8;                                 ///< tile rows per group of the raster order; 0: linear row order
  int stages = 3;                                  ///< k-blocks in flight in shared memory
  int warps = 4;                                   ///< that multiply; the sm90 main loop adds a producer warpgroup
  /// Thread blocks of a cluster (sm90): cluster_m x cluster_n neighbouring tiles, which fetch what they share of A and
  /// B once (TMA multicast), times cluster_k blocks that cut the k-blocks of each tile, or of each of its `splits`
  /// parts, and add up in distributed shared memory.
  int cluster_m = 1, cluster_n = 1, cluster_k = 1;
  bool ping_pong = false;  ///< sm90: each consumer warpgroup has tiles of its own; else all share each tile
  bool swap_ab = false;    ///< sm90: computes D^T = B^T A^T, so that block_m and cluster_m lie along N, block_n along M
  /// sm90: the operand is first copied into the workspace, with rows of whole 128-byte lines and, other than 16-bit
  /// types, K-major. So TMA and wgmma take what they could not take where it is.
  bool pack_a = false, pack_b = false;
  Schedule schedule = Schedule::data_parallel;
  int splits = 1;  ///< of split_k, else 1
  /// Thread blocks of the persistent and stream-K schedules, of whole clusters; 0: a cluster a tile, which splits none.
  int grid = 0;
  /// sm90: one kernel serves all cluster_m and cluster_n, which its launch says, where others are made for one cluster.
  /// For sets of few kernels: it takes 0 to 4 % longer, seldom more. Of whole tiles (data_parallel and persistent),
  /// without groups and shards; block_m is a multiple of 8 cluster_n where the kernel's A is K-major, block_n of 8
  /// cluster_m where its B is, of pairs 16.
  bool cluster_at_launch = false;

  bool operator==(const KernelConfig&) const = default;
};

JITGEMM_EXPORT std::string_view to_string(MainLoop main_loop);
JITGEMM_EXPORT std::string_view to_string(Schedule schedule);
JITGEMM_EXPORT std::string to_string(const KernelConfig& config);
JITGEMM_EXPORT std::optional<Schedule> parse_schedule(std::string_view text);

/// Throws Error{invalid_config}, naming the word that it cannot read.
JITGEMM_EXPORT KernelConfig parse_kernel_config(std::string_view text);

}  // namespace jitgemm
