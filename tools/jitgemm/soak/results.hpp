#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "jitgemm/context.hpp"
#include "soak/memory.hpp"
#include "soak/sharing.hpp"

namespace jitgemm::cli {

/// Counts of calls, by what they share with those of other threads, and the first that failed. Thread-safe.
class SoakResults {
 public:
  struct Tally {
    std::atomic<std::uint64_t> calls = 0, checked = 0, failures = 0;
  };

  void count(const SoakCall& call, Sharing sharing);
  void checked(Sharing sharing);
  void fail(const SoakCall& call, Sharing sharing, const std::string& what);

  const Tally& of(Sharing sharing) const { return tallies_[std::size_t(sharing)]; }
  std::uint64_t calls() const { return sum(&Tally::calls); }
  std::uint64_t checked() const { return sum(&Tally::checked); }
  std::uint64_t packed() const { return packed_; }
  int failures() const { return failures_; }
  /// Once all threads have ended.
  const std::vector<std::string>& first_failures() const { return first_failures_; }

 private:
  std::uint64_t sum(std::atomic<std::uint64_t> Tally::* member) const;

  std::array<Tally, sharing_count> tallies_;
  std::atomic<std::uint64_t> packed_ = 0;
  std::atomic<int> failures_ = 0;
  std::mutex mutex_;
  std::vector<std::string> first_failures_;  // under mutex_
};

/// What else there is to say of a soak.
struct SoakFacts {
  DeviceDescription device;
  std::uint64_t seed = 0;
  int threads = 0;
  double seconds = 0;
  std::size_t patterns = 0;
  std::vector<Sharing> sharings;
  MemoryInUse memory_at_start, memory_at_end;
  Counters counters;
};
/// Prints both. Throws Error if a call failed.
void report(const SoakResults& results, const SoakFacts& facts, bool json);

}  // namespace jitgemm::cli
