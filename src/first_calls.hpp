#pragma once

#include <memory>
#include <optional>

#include "chooser.hpp"
#include "kernels_at_hand.hpp"

namespace jitgemm {

/// Serves a problem's first calls while its kernel compiles on another thread. Thread-safe.
class FirstCalls {
 public:
  /// How a call is served meanwhile.
  struct Stopgap {
    std::optional<Ready> kernel;  ///< one at hand; else the caller's fallback
  };

  /// `has_fallback`: the caller has other means to compute a call.
  FirstCalls(Backend& backend, KernelStore& store, Chooser& chooser, KernelsAtHand& at_hand, bool has_fallback);
  ~FirstCalls();  ///< waits for compiles that have begun, but not in a forked child, which has none; others are dropped

  /// Of a normalised problem that is in no ReadyTable yet. nullopt: its kernel is at hand, or could not be compiled, or
  /// there is no thread to compile it, or nothing to do but to wait for it.
  std::optional<Stopgap> stopgap(const ReadyKey& key, const NormalProblem& problem);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace jitgemm
