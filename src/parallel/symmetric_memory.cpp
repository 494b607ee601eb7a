#include "parallel/symmetric_memory.hpp"

#include <optional>
#include <string>
#include <utility>

#include "parallel/agreement.hpp"
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
  std::array<Step, device::most_ranks> all;
  Step own;
  const auto attempt = [&](auto&& work) {
    std::optional<Error> failure = failure_of(work);
    own.failed = failure.has_value();
    if (failure) own.code = failure->code();
    meet(all_gather, &own, all.data(), sizeof own);
    for (int other = 0; other < ranks && !failure; ++other)
      if (all[std::size_t(other)].failed)
        failure = Error(all[std::size_t(other)].code,
                        "rank " + std::to_string(other) + " has no memory that the others reach: see its own error");
    if (!failure) return;
    free_together(all_gather);
    throw Error(*failure);
  };

  attempt([&] {
    void* const memory = backend.allocate(bytes);
    memory_[std::size_t(rank)] = memory;
    backend.zero(memory, bytes);
    own.handle = backend.handle_of(memory);
  });
  // When the second exchange is over, all memory is zeros, and reached by all.
  attempt([&] {
    for (int other = 0; other < ranks; ++other)
      if (other != rank) memory_[std::size_t(other)] = backend.open_peer(all[std::size_t(other)].handle);
  });
}

SymmetricMemory::~SymmetricMemory() {
  close_others();
  release_own();
}

void SymmetricMemory::free_together(const AllGatherBytes& all_gather) {
  close_others();
  const char own = 0;
  std::array<char, device::most_ranks> all;
  meet(all_gather, &own, all.data(), sizeof own);
  release_own();
}

void SymmetricMemory::meet(const AllGatherBytes& all_gather, const void* own, void* all, std::size_t bytes) {
  try {
    all_gather(own, all, bytes);
  } catch (...) {  // others may have it open, and nobody learns when they close it
    leave_behind(std::exchange(memory_[std::size_t(rank_)], nullptr));
    close_others();
    throw;
  }
}

void SymmetricMemory::release_own() noexcept {
  if (void* const memory = std::exchange(memory_[std::size_t(rank_)], nullptr)) backend_.release(memory);
}

void SymmetricMemory::close_others() noexcept {
  for (int other = 0; other < ranks_; ++other) {
    if (other == rank_) continue;
    if (void* const memory = std::exchange(memory_[std::size_t(other)], nullptr)) backend_.close_peer(memory);
  }
}

}  // namespace jitgemm
