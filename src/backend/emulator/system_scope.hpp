#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace jitgemm::emulator {

/// Stores a flag that other devices' kernels may be waiting for, as a copy engine does, and remembers that it is one:
/// kernels may touch it by ld_acquire_sys and st_release_sys alone. Thread-safe, as all of these.
void release_flag(std::uint32_t* address, std::uint32_t x);
/// Memory that is freed has neither these nor words any more.
void forget_flags(const void* memory) noexcept;
/// What the host stores in its own memory needs no release that is known here.
void add_host_memory(const void* memory, std::size_t bytes);

/// Words that a launch has stored and no other device sees yet.
class PendingWords {
 public:
  bool empty() const { return words_.empty(); }
  /// What was to be seen there before, nobody needs to have seen. `at_once`: it is seen now.
  void put(unsigned long long* address, unsigned long long x, bool at_once);
  /// The one at the lowest address, or at the highest.
  void show_one(bool lowest);

 private:
  std::map<unsigned long long*, unsigned long long> words_;
};

}  // namespace jitgemm::emulator
