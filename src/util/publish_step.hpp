#pragma once

#include <atomic>

namespace jitgemm {

/// Told the name of each step of publishing a file before it is taken, so that a test can end the process there.
/// Null but in tests.
using PublishHook = void (*)(const char* step);
extern std::atomic<PublishHook> publish_hook;

inline void publish_step(const char* step) {
  if (const PublishHook hook = publish_hook.load(std::memory_order_relaxed)) hook(step);
}

}  // namespace jitgemm
