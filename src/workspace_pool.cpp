#include "workspace_pool.hpp"

#include <algorithm>

namespace jitgemm {

Workspace WorkspacePool::of_stream(Stream stream, std::size_t bytes, int counters) {
  const std::uint64_t id = backend_.stream_id(stream);
  Block block;
  {
    const std::shared_lock lock(blocks_mutex_);
    const auto found = blocks_.find(id);
    if (found != blocks_.end()) block = found->second;
  }
  if (block.holds(bytes, counters)) return block.workspace;
  if (block.dirty) {
    backend_.synchronize(stream);  // launches before the one that failed
    zero_counters(block);
    block.dirty = false;
  }
  // At least twice as large as before, so that those kept are smaller in sum than the newest.
  grow(block, bytes > block.bytes ? std::max(bytes, 2 * block.bytes) : 0,
       counters > block.counters ? std::max({counters, 2 * block.counters, 1024}) : 0);
  const std::unique_lock lock(blocks_mutex_);
  blocks_[id] = block;
  return block.workspace;
}

Workspace WorkspacePool::of_capture(std::size_t bytes, int counters) {
  Block block;
  grow(block, bytes, counters);
  return block.workspace;
}

void WorkspacePool::launch_failed(const Workspace& workspace) noexcept {
  {
    const std::unique_lock lock(blocks_mutex_);
    for (auto& [id, block] : blocks_) {
      if (block.workspace.counters == workspace.counters) {
        block.dirty = true;
        return;
      }
    }
  }
  const std::lock_guard lock(memory_mutex_);
  std::erase_if(memory_, [&](const Memory& memory) {
    return memory.get() == workspace.memory || memory.get() == workspace.counters;
  });
}

void WorkspacePool::grow(Block& block, std::size_t bytes, int counters) {
  Block grown = block;
  Memory scratch(nullptr, {&backend_}), counted(nullptr, {&backend_});
  if (bytes > 0) {
    scratch.reset(grown.workspace.memory = backend_.allocate(bytes));
    grown.bytes = bytes;
  }
  if (counters > 0) {
    counted.reset(backend_.allocate(std::size_t(counters) * sizeof(unsigned)));
    grown.workspace.counters = static_cast<unsigned*>(counted.get());
    grown.counters = counters;
    zero_counters(grown);
  }
  const std::lock_guard lock(memory_mutex_);
  memory_.reserve(memory_.size() + 2);
  if (scratch) memory_.push_back(std::move(scratch));
  if (counted) memory_.push_back(std::move(counted));
  block = grown;
}

void WorkspacePool::zero_counters(const Block& block) {
  if (block.counters > 0) backend_.zero(block.workspace.counters, std::size_t(block.counters) * sizeof(unsigned));
}

}  // namespace jitgemm
