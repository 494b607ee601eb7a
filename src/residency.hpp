#pragma once

#include <atomic>

#include "chooser.hpp"
#include "ready_table.hpp"

namespace jitgemm {

/// What a stream's part of the device (a MIG slice, a green context, what MPS leaves) cannot hold at once is never
/// scheduled there, and a launch of it fails. Clusters are the first to go: all their blocks are to be resident
/// together. Thread-safe.
class Residency {
 public:
  Residency(Backend& backend, KernelStore& store, Chooser& chooser)
      : backend_(backend), store_(store), chooser_(chooser) {}

  bool holds(const Ready& ready, Stream stream) {
    return backend_.can_be_resident(*ready.gemm().loaded, ready.shape, stream);
  }

  /// The same of a launch that has failed, whatever else may be wrong with the device.
  bool is_why_it_failed(const Ready& ready, Stream stream) noexcept;

  /// The best choice that the stream can hold in place of one that it cannot, with no more workspace. Compiles it if
  /// need be. Logs the first one. Throws Error{launch_failed} if there is none.
  Ready instead_of(const Ready& refused, const NormalProblem& problem, Stream stream);

  /// Of a configuration that is the caller's: Error{invalid_config}.
  [[noreturn]] static void refuse(const Ready& refused);

 private:
  Backend& backend_;
  KernelStore& store_;
  Chooser& chooser_;
  std::atomic<bool> told_ = false;
};

}  // namespace jitgemm
