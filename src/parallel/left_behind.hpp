#pragma once

#include <mutex>
#include <new>
#include <vector>

namespace jitgemm {

/// Keeps for good what a lost rank or its calls may still use: to free it would wait for a rank that does not come. It
/// stays reachable, so that leak checkers know it for meant.
inline void leave_behind(const void* memory) noexcept {
  if (!memory) return;
  static std::mutex mutex;
  static std::vector<const void*>& all = *new std::vector<const void*>;  // nothing is freed at exit, either
  try {
    const std::lock_guard lock(mutex);
    all.push_back(memory);
  } catch (const std::bad_alloc&) {  // then nobody remembers it
  }
}

}  // namespace jitgemm
