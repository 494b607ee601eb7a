#pragma once

#include <cstdint>

#include "core/device_info.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

/// Of launches whose blocks start while those of the launch before still run, what that does to one that does not fill
/// the GPU. Alone, its blocks sit evenly: one for two SMs, and as many for each GPC. Where others sit already they go
/// wherever room appears, some share what a GPC takes in, and those of them that read most slowly end last. On an H100,
/// with kernels that read at the memory's rate, back to back, over the same ones between strangers: 1.2 times as long
/// with blocks for 0.57 of the SMs, 1.1 for 0.7, as long from 0.8 on; and as long up to half of the SMs, where two
/// launches have room beside each other (tools/results/NOTES.md, 54).
struct EarlyStart {
  bool wants_empty_gpu = false;  ///< start its blocks when those of the launch before have ended
  bool holds_next_back = false;  ///< start the next launch's when its own have ended: in doubt the next one is like it
};

/// Whether that is asked of a launch at all: not of groups, of whose bytes the host knows a bound, nor where tensor
/// cores, and not memory, take the time.
bool has_early_start(const DeviceInfo& device, const Problem& problem);

/// A launch's blocks, `slots` of which run at once, and the whole tiles or parts of tiles that they take in turn.
struct BlocksInTurn {
  std::int64_t blocks, slots, parts;
};

/// Of a launch of has_early_start() that reads and writes for so long.
EarlyStart early_start_of(const BlocksInTurn& grid, double memory_us);

/// What waiting for the last block of the launch before costs a launch.
inline constexpr double late_start_us = 0.4;

}  // namespace jitgemm
