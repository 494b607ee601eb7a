#pragma once

#include <array>
#include <atomic>

#include "backend/backend.hpp"
#include "core/problem.hpp"

namespace jitgemm {

/// Pointers that the backend has looked at lately: looking costs about as much as the rest of a call. A place a hash,
/// and the newer pointer stays. So memory that is freed and comes back as another kind may pass: the check is a help,
/// not a guard. Thread-safe.
class CheckedPointers {
 public:
  /// Throws Error{invalid_operand} unless the device can access all that the call reads and writes.
  void check(Backend& backend, const NormalProblem& normalised, const Operands& operands, Stream stream);

 private:
  void check(Backend& backend, const void* pointer, const char* name, Stream stream);

  std::array<std::atomic<const void*>, 1024> places_ = {};
};

}  // namespace jitgemm
