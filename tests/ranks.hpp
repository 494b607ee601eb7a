#pragma once

#include <barrier>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel/symmetric_memory.hpp"

namespace jitgemm::test {

/// The ranks of a node as threads of this process, which exchange bytes of host memory.
class Ranks {
 public:
  explicit Ranks(int count) : count_(count), barrier_(count), given_(static_cast<std::size_t>(count)) {}

  /// Calls `work` for each rank, in a thread of its own. The first rank that throws has its exception thrown here, when
  /// all have ended.
  void run(const std::function<void(int rank)>& work) {
    std::vector<std::exception_ptr> failures(static_cast<std::size_t>(count_));
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < count_; ++rank)
        threads.emplace_back([&, rank] {
          try {
            work(rank);
          } catch (...) {
            failures[std::size_t(rank)] = std::current_exception();
            barrier_.arrive_and_drop();  // the others go on without it
          }
        });
    }
    for (const auto& failure : failures)
      if (failure) std::rethrow_exception(failure);
  }

  /// Returns when all have called it.
  void meet(int rank) {
    char none = 0;
    std::vector<char> all(static_cast<std::size_t>(count_));
    all_gather(rank)(&none, all.data(), 1);
  }

  /// its.run(), and what comes of it when all have ended: until then others may use the memory that `its` has.
  template <typename Its>
  void run_until_all_end(int rank, Its& its) {
    std::exception_ptr failure;
    try {
      its.run();
    } catch (...) {
      failure = std::current_exception();
    }
    meet(rank);
    if (failure) std::rethrow_exception(failure);
  }

  AllGatherBytes all_gather(int rank) {
    return [this, rank](const void* own, void* all, std::size_t bytes) {
      given_[std::size_t(rank)] = own;
      barrier_.arrive_and_wait();
      for (std::size_t i = 0; i < given_.size(); ++i)
        std::memcpy(static_cast<char*>(all) + i * bytes, given_[i], bytes);
      barrier_.arrive_and_wait();
    };
  }

 private:
  int count_;
  std::barrier<> barrier_;
  std::vector<const void*> given_;
};

}  // namespace jitgemm::test
