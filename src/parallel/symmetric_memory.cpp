#include "parallel/symmetric_memory.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jitgemm/error.hpp"
#include "parallel/left_behind.hpp"

namespace jitgemm {
namespace {

/// What each rank tells the others of a step: as no rank goes on alone, none waits for one that has failed.
struct Step {
  PeerHandle handle = {};
  bool failed = false;
  ErrorCode code = ErrorCode::internal;
};

}  // namespace

SymmetricMemory::SymmetricMemory(Backend& backend, int rank, int ranks, const AllGatherBytes& all_gather,
                                 std::size_t bytes)
    : backend_(backend), rank_(rank), ranks_(ranks), bytes_(bytes) {
  std::optional<Error> failure;
  const auto attempt = [&](Step& own, auto&& work) {
    try {
      work();
    } catch (const Error& error) {
      own.failed = true;
      own.code = error.code();
      failure = error;
    }
    std::vector<Step> all(static_cast<std::size_t>(ranks));
    try {
      all_gather(&own, all.data(), sizeof own);
    } catch (...) {  // others may have opened it, and nobody learns when they close it
      leave_behind(std::exchange(memory_[std::size_t(rank)], nullptr));
      close();
      throw;
    }
    for (int other = 0; other < ranks && !failure; ++other)
      if (all[std::size_t(other)].failed)
        failure = Error(all[std::size_t(other)].code,
                        "rank " + std::to_string(other) + " has no memory that the others reach: see its own error");
    if (!failure) return all;
    close();
    throw Error(*failure);
  };

  Step own;
  const std::vector<Step> all = attempt(own, [&] {
    void* const memory = backend.allocate(bytes);
    memory_[std::size_t(rank)] = memory;
    backend.zero(memory, bytes);
    own.handle = backend.handle_of(memory);
  });
  // When the second exchange is over, all memory is zeros, and reached by all.
  attempt(own, [&] {
    for (int other = 0; other < ranks; ++other)
      if (other != rank) memory_[std::size_t(other)] = backend.open_peer(all[std::size_t(other)].handle);
  });
}

SymmetricMemory::~SymmetricMemory() { close(); }

void SymmetricMemory::close() noexcept {
  for (int other = 0; other < ranks_; ++other) {
    void* const memory = std::exchange(memory_[std::size_t(other)], nullptr);
    if (!memory) continue;
    if (other == rank_)
      backend_.release(memory);
    else
      backend_.close_peer(memory);
  }
}

}  // namespace jitgemm
