#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "backend/emulator/clock.hpp"

namespace jitgemm::emulator {

struct Block;
struct Thread;

/// Bytes of 16, a bit each.
using Bytes = std::uint16_t;

/// Who wrote and read 16 bytes of shared memory last. One cache line.
///
/// Two threads race when they touch the same byte, so a word is followed as a whole while whole words are written, and
/// each of its bytes alone once a smaller store has been there: neighbours may fill the halves of a word.
struct alignas(64) Cell {
  Stamp writers[4];          // of each word
  Stamp readers[3];          // whom a later write to the bytes they read must come after
  Bytes bytes_read[3] = {};  // by each of the readers
  bool more_readers : 1 = false;
  unsigned char mbarriers : 2 = 0;    // a bit for each 8 bytes
  unsigned char split_words : 4 = 0;  // a bit for each word whose bytes have writers of their own
};
static_assert(sizeof(Cell) == 64);

/// How an access reaches memory: by an ordinary instruction of the thread, by TMA, or by the wgmma of a warpgroup, all
/// of whose threads must have synchronised with the writers.
enum class Proxy { generic, tma, wgmma };

/// A block's shared memory and the race check on it.
class SharedMemory {
 public:
  void reset(const Block& owner, std::size_t bytes, std::uint32_t base);

  std::uint32_t base() const { return base_; }

  /// Bounds and alignment; faults name `operation`.
  unsigned char* at(Thread& thread, std::uint32_t address, std::uint32_t bytes, std::uint32_t alignment,
                    const char* operation);

  /// Race checks of an access by `thread` that takes effect for others as `as`.
  void read(Thread& thread, std::uint32_t address, std::uint32_t bytes, Stamp as, Proxy proxy, const char* operation);
  void write(Thread& thread, std::uint32_t address, std::uint32_t bytes, Stamp as, Proxy proxy, const char* operation);

  /// From here on only mbarrier operations may touch these 8 bytes.
  void mark_mbarrier(std::uint32_t address) {
    Cell& c = cell(address);
    c.mbarriers = c.mbarriers | 1 << address / 8 % 2;
  }

 private:
  Cell& cell(std::uint32_t address) { return cells_[(address - base_) / 16]; }
  void check_no_mbarrier(Thread& thread, const Cell& c, std::uint32_t address, std::uint32_t end,
                         const char* operation);
  void check_fenced(Thread& thread, std::uint32_t address, Stamp writer, Proxy proxy, const char* operation);
  bool owner_fenced(Thread& thread, Stamp writer, Proxy proxy) const;
  void add_reader(Thread& thread, std::uint32_t address, Cell& c, Bytes bytes, Stamp as);
  void check_readers(Thread& thread, std::uint32_t address, Cell& c, Bytes bytes, const char* operation);
  Stamp* byte_writers(std::uint32_t address) { return &byte_writers_[address - base_]; }

  const Block* owner_ = nullptr;
  std::uint32_t base_ = 0;
  std::vector<unsigned char> bytes_;
  std::vector<Cell> cells_;
  std::vector<Stamp> byte_writers_;  // of each byte of a split word
  struct Reading {
    std::uint32_t time = 0;
    Bytes bytes = 0;
  };
  std::unordered_map<std::uint32_t, std::vector<Reading>> more_readers_;  // of a cell: by entity
};

}  // namespace jitgemm::emulator
