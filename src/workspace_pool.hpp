#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "jit/launcher.hpp"

namespace jitgemm {

/// Scratch for split tiles and packed operands: one block a stream, by the stream's id, and one a captured call. Launches of one stream
/// follow each other, so they share a block; a block that got too small is kept beside its successor, since earlier
/// launches may still use it. All memory stays until the pool dies. Thread-safe.
class WorkspacePool {
 public:
  explicit WorkspacePool(Backend& backend) : backend_(backend) {}

  Workspace of_stream(Stream stream, std::size_t bytes, int counters);
  Workspace of_capture(std::size_t bytes, int counters);

  /// The launch that this was for has failed: its counters may not be zero, and a capture has not taken it.
  void launch_failed(const Workspace& workspace) noexcept;

 private:
  struct Block {
    Workspace workspace;
    std::size_t bytes = 0;
    int counters = 0;
    bool dirty = false;  // the counters may not be zero
    bool holds(std::size_t size, int count) const { return size <= bytes && count <= counters && !dirty; }
  };
  struct Release {
    Backend* backend;
    void operator()(void* memory) const noexcept { backend->release(memory); }
  };
  using Memory = std::unique_ptr<void, Release>;

  /// All of it or, with an Error, nothing.
  void grow(Block& block, std::size_t bytes, int counters);
  void zero_counters(const Block& block);

  Backend& backend_;
  std::shared_mutex blocks_mutex_;
  std::unordered_map<std::uint64_t, Block> blocks_;  // by stream id
  std::mutex memory_mutex_;
  std::vector<Memory> memory_;
};

}  // namespace jitgemm
