#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "backend/emulator/clock.hpp"

namespace jitgemm::emulator {

/// 16 bytes that st_global_cg wrote during this launch.
struct PartialCell {
  std::uint32_t block = 0;
  Stamp writer;            // in its cluster
  unsigned char data[16];  // until it is released
  bool released = false;
  const void* counter = nullptr;  // released by an increment of this counter, ...
  std::uint32_t position = 0;     // ... the how-manieth of this launch
};

struct LaunchGlobalMemory {
  std::unordered_map<std::uintptr_t, PartialCell> cells;
  std::unordered_map<const void*, std::uint32_t> increments;  // of each counter
};

struct ClusterGlobalMemory {
  struct Acquisition {
    const void* counter;
    std::uint32_t position;
    Stamp by;
  };
  std::vector<std::uintptr_t> unreleased;
  std::vector<Acquisition> acquisitions;
};

/// At the end of a launch all stores are visible.
void flush(LaunchGlobalMemory& memory);

}  // namespace jitgemm::emulator
