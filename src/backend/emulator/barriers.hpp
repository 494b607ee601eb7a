#pragma once

#include "backend/emulator/launch.hpp"

namespace jitgemm::emulator {

/// A fault unless there is one, in `block`.
Mbarrier& mbarrier_at(Thread& thread, Block& block, u32 address, const char* operation);
/// A thread of the same cluster arrives.
void arrive_at(Thread& thread, Mbarrier& barrier, const char* operation);
/// The same, which announces bytes.
void expect_at(Thread& thread, Mbarrier& barrier, u32 bytes, const char* operation);
void check_usable_by_tma(Thread& thread, const Mbarrier& barrier);

/// Ends the phase if nothing is missing.
void complete_phase(Launch& launch, Mbarrier& barrier);

}  // namespace jitgemm::emulator
