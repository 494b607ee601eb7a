#pragma once

#include "backend/emulator/launch.hpp"

namespace jitgemm::emulator {

// An address of the cluster's shared memory has the block's rank + 1 from this bit on.
constexpr u32 rank_shift = 24;
constexpr bool is_mapped(u32 address) { return address >> rank_shift != 0; }
/// For operations that take an address of their own block.
[[noreturn]] void fault_mapped(Thread& thread, u32 address, const char* operation);

/// A block that the thread's cluster has, and that has not ended.
Block& peer(Thread& thread, u32 rank, const char* operation);

/// The thread ends: the cluster's barrier does not wait for it.
void leave_cluster(Thread& thread);

/// A fault if the block ends before what other blocks do in its shared memory, or may.
void check_peers_are_done(Block& block);

}  // namespace jitgemm::emulator
