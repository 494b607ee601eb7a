#include "workspace_pool.hpp"

#include <algorithm>

namespace jitgemm {

WorkspacePool::~WorkspacePool() {
  for (void* memory : memory_) backend_.release(memory);
}

Workspace WorkspacePool::of_stream(Stream stream, std::size_t partial_bytes, int counters) {
  const std::uint64_t id = backend_.stream_id(stream);
  Block block;
  {
    const std::shared_lock lock(blocks_mutex_);
    const auto found = blocks_.find(id);
    if (found != blocks_.end()) block = found->second;
  }
  if (block.holds(partial_bytes, counters)) return block.workspace;
  // At least twice as large as before, so that those kept are smaller in sum than the newest.
  grow(block, partial_bytes > block.partial_bytes ? std::max(partial_bytes, 2 * block.partial_bytes) : 0,
       counters > block.counters ? std::max({counters, 2 * block.counters, 1024}) : 0);
  const std::unique_lock lock(blocks_mutex_);
  blocks_[id] = block;
  return block.workspace;
}

Workspace WorkspacePool::of_capture(std::size_t partial_bytes, int counters) {
  Block block;
  grow(block, partial_bytes, counters);
  return block.workspace;
}

void WorkspacePool::forget(Stream stream) noexcept {
  try {
    const std::uint64_t id = backend_.stream_id(stream);
    const std::unique_lock lock(blocks_mutex_);
    blocks_.erase(id);
  } catch (const std::exception&) {
    // A context that cannot name its stream launches nothing any more.
  }
}

void WorkspacePool::grow(Block& block, std::size_t partial_bytes, int counters) {
  if (partial_bytes > 0) {
    block.workspace.partials = allocate(partial_bytes);
    block.partial_bytes = partial_bytes;
  }
  if (counters > 0) {
    const std::size_t bytes = std::size_t(counters) * sizeof(unsigned);
    block.workspace.counters = static_cast<unsigned*>(allocate(bytes));
    backend_.zero(block.workspace.counters, bytes);
    block.counters = counters;
  }
}

void* WorkspacePool::allocate(std::size_t bytes) {
  void* memory = backend_.allocate(bytes);
  const std::lock_guard lock(memory_mutex_);
  try {
    memory_.push_back(memory);
  } catch (...) {
    backend_.release(memory);
    throw;
  }
  return memory;
}

}  // namespace jitgemm
