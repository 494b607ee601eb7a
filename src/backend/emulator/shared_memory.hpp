#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "backend/emulator/clock.hpp"

namespace jitgemm::emulator {

struct Thread;

/// Who wrote and read 16 bytes of shared memory last. One cache line.
struct alignas(64) Cell {
  Stamp writers[4];  // of each 4 bytes: several threads may fill one cell
  Stamp readers[3];  // whom a later write must come after
  bool more_readers = false;
  unsigned char mbarriers = 0;  // a bit for each 8 bytes
};

/// How an access reaches memory: by an ordinary instruction of the thread, by TMA, or by the wgmma of a warpgroup, all
/// of whose threads must have synchronised with the writers.
enum class Proxy { generic, tma, wgmma };

/// A block's shared memory and the race check on it.
class SharedMemory {
 public:
  void reset(std::size_t bytes, std::uint32_t base);

  std::uint32_t base() const { return base_; }

  /// Bounds and alignment; faults name `operation`.
  unsigned char* at(Thread& thread, std::uint32_t address, std::uint32_t bytes, std::uint32_t alignment,
                    const char* operation);

  /// Race checks of an access by `thread` that takes effect for others as `as`.
  void read(Thread& thread, std::uint32_t address, std::uint32_t bytes, Stamp as, Proxy proxy, const char* operation);
  void write(Thread& thread, std::uint32_t address, std::uint32_t bytes, Stamp as, Proxy proxy, const char* operation);

  /// From here on only mbarrier operations may touch these 8 bytes.
  void mark_mbarrier(std::uint32_t address) { cell(address).mbarriers |= 1 << address / 8 % 2; }

 private:
  Cell& cell(std::uint32_t address) { return cells_[(address - base_) / 16]; }
  void check_no_mbarrier(Thread& thread, const Cell& c, std::uint32_t address, std::uint32_t end,
                         const char* operation);
  void check_fenced(Thread& thread, std::uint32_t address, Stamp writer, Proxy proxy, const char* operation);
  void add_reader(Thread& thread, std::uint32_t address, Cell& c, Stamp as);

  std::uint32_t base_ = 0;
  std::vector<unsigned char> bytes_;
  std::vector<Cell> cells_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> more_readers_;  // of a cell: time by entity
};

}  // namespace jitgemm::emulator
