#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "backend/backend.hpp"
#include "jit/call.hpp"

namespace jitgemm {

/// Gets kernels, in order, in threads; where the system gives none, the caller that asks a future for one gets it.
/// Destruction waits for the compiles under way.
class CompileAhead {
 public:
  CompileAhead(Backend& backend, std::size_t count, std::function<CallKernels(std::size_t)> get);
  ~CompileAhead() { stop(); }

  /// Starts no other compile.
  void stop() { stop_ = true; }
  std::future<CallKernels>& operator[](std::size_t i) { return futures_[i]; }

 private:
  void work();

  Backend& backend_;
  std::function<CallKernels(std::size_t)> get_;
  std::vector<std::promise<CallKernels>> promises_;
  std::vector<std::future<CallKernels>> futures_;
  std::atomic<bool> stop_ = false;
  std::atomic<std::size_t> next_ = 0;
  std::vector<std::jthread> threads_;  // last: joined first
};

}  // namespace jitgemm
