#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace jitgemm::test {

/// Zeros that take memory only where they are written, between pages that fault when they are touched. They end
/// `guard_bytes` before the protected page behind them, and begin at a multiple of 256 bytes: give a size that is one,
/// or offset the pointer.
class SparseMemory {
 public:
  static constexpr std::size_t guard_bytes = 1 << 16;

  /// Throws std::bad_alloc where the system gives no such address space.
  explicit SparseMemory(std::size_t bytes);
  ~SparseMemory();
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;

  char* get() const { return memory_; }
  char* end() const { return memory_ + bytes_; }

  /// Fills what lies behind the memory, which nothing may write.
  void set_guard() const { std::memset(end(), guard, guard_bytes); }
  bool guard_is_whole() const {
    for (std::size_t i = 0; i < guard_bytes; ++i)
      if (end()[i] != guard) return false;
    return true;
  }

 private:
  static constexpr char guard = 0x5a;
  char *mapping_, *memory_;
  std::size_t bytes_, mapped_;
};

}  // namespace jitgemm::test
