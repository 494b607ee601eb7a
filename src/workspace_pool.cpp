#include "workspace_pool.hpp"

#include <algorithm>

#include "jitgemm/error.hpp"

namespace jitgemm {
namespace {

constexpr int fewest_counters = 1024;
constexpr std::size_t streams_between_sweeps = 1024;

std::size_t counter_bytes(int counters) { return std::size_t(counters) * sizeof(unsigned); }

/// At least twice as large as what it succeeds, so that all that was outgrown is smaller in sum.
std::size_t grown(std::size_t bytes, std::size_t needed) {
  return needed > bytes ? std::max(needed, 2 * bytes) : bytes;
}
WorkspaceNeed rounded(const WorkspaceNeed& need) {
  return {need.bytes, need.counters > 0 ? std::max(need.counters, fewest_counters) : 0};
}

}  // namespace

/// Lives in a user object of a graph. What ends it may be any thread, which may not call CUDA.
struct WorkspacePool::DropsWithGraph {
  DropsWithGraph(std::shared_ptr<Dropped> where, std::uint64_t its_key) : dropped(std::move(where)), key(its_key) {}
  ~DropsWithGraph() {
    const std::lock_guard lock(dropped->mutex);
    dropped->keys.push_back(key);  // of_capture() has reserved the place
    dropped->any = true;
  }
  DropsWithGraph(const DropsWithGraph&) = delete;
  DropsWithGraph& operator=(const DropsWithGraph&) = delete;

  const std::shared_ptr<Dropped> dropped;
  const std::uint64_t key;
};

bool WorkspacePool::Block::holds(const WorkspaceNeed& need) const {
  return need.bytes <= scratch.bytes && counter_bytes(need.counters) <= counters.bytes;
}

std::size_t WorkspacePool::StreamWorkspace::bytes() const {
  std::size_t sum = block.bytes();
  for (const Buffer& buffer : outgrown) sum += buffer.bytes;
  return sum;
}

WorkspacePool::Buffer WorkspacePool::allocate(std::size_t bytes, const StreamWorkspace* own) {
  if (bytes == 0) return {};
  void* memory = nullptr;
  try {
    memory = backend_.allocate(bytes);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    free_streams(own);
    memory = backend_.allocate(bytes);
  }
  return {{memory, Release{&backend_}}, bytes};
}

void WorkspacePool::zero_counters(const Block& block) {
  if (block.counters.bytes > 0) backend_.zero(block.counters.memory.get(), block.counters.bytes);
}

void WorkspacePool::with_workspace(Stream stream, const WorkspaceNeed& need,
                                   FunctionRef<void(const Workspace&)> enqueue) {
  if (backend_.capture_status(stream) == CaptureStatus::capturing) return with_capture(stream, need, enqueue);
  const std::uint64_t id = backend_.stream_id(stream);
  for (;;) {
    const std::shared_ptr<StreamWorkspace> own = of_stream(id);
    const std::lock_guard unit(own->unit);
    if (own->gone) continue;  // taken between the two lines above
    own->last_use = ++uses_;
    if (own->dirty) {
      backend_.synchronize(stream);  // launches before the one that failed
      zero_counters(own->block);
      own->dirty = false;
    }
    if (!own->block.holds(need)) grow(*own, need);
    try {
      enqueue(own->block.workspace());
    } catch (...) {
      own->dirty = need.counters > 0;
      throw;
    }
    return;
  }
}

std::shared_ptr<WorkspacePool::StreamWorkspace> WorkspacePool::of_stream(std::uint64_t id) {
  {
    const std::shared_lock lock(streams_mutex_);
    if (const auto found = streams_.find(id); found != streams_.end()) return found->second;
  }
  const std::unique_lock lock(streams_mutex_);
  // Callers that bring their own memory leave entries without any, which no bound counts.
  if (streams_.size() % streams_between_sweeps == streams_between_sweeps - 1) {
    std::vector<Buffer> none;
    std::erase_if(streams_, [&](const auto& entry) { return take(*entry.second, none, 0); });
  }
  const auto found = streams_.find(id);
  if (found != streams_.end()) return found->second;
  return streams_.emplace(id, std::make_shared<StreamWorkspace>()).first->second;
}

void WorkspacePool::grow(StreamWorkspace& own, const WorkspaceNeed& need) {
  const WorkspaceNeed asked = rounded(need);
  const auto add = [&](Buffer& buffer, std::size_t needed) {
    const std::size_t bytes = grown(buffer.bytes, needed);
    if (bytes == buffer.bytes) return;
    make_room(bytes, own);
    Buffer larger;
    try {
      own.outgrown.reserve(own.outgrown.size() + 1);
      larger = allocate(bytes, &own);
      if (&buffer == &own.block.counters) backend_.zero(larger.memory.get(), bytes);
    } catch (...) {
      stream_bytes_ -= bytes;
      throw;
    }
    std::swap(buffer, larger);
    if (larger.memory) own.outgrown.push_back(std::move(larger));
  };
  add(own.block.scratch, asked.bytes);
  add(own.block.counters, counter_bytes(asked.counters));
}

void WorkspacePool::make_room(std::size_t bytes, StreamWorkspace& own) {
  std::vector<Buffer> buffers;  // freed last, with no lock that another stream's call may wait for
  const std::unique_lock lock(streams_mutex_);
  const auto too_much = [&] { return stream_bytes_ + bytes > bound_; };
  if (too_much()) {
    buffers.reserve(own.outgrown.size());
    for (Buffer& buffer : own.outgrown) {
      stream_bytes_ -= buffer.bytes;
      buffers.push_back(std::move(buffer));
    }
    own.outgrown.clear();
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> by_age;  // last use, id
  if (too_much()) {
    for (const auto& [id, stream] : streams_)
      if (stream.get() != &own) by_age.emplace_back(stream->last_use, id);
    std::sort(by_age.begin(), by_age.end());
  }
  for (const auto& [last_use, id] : by_age) {
    if (!too_much()) break;
    const auto found = streams_.find(id);
    if (take(*found->second, buffers)) streams_.erase(found);
  }
  stream_bytes_ += bytes;
}

bool WorkspacePool::take(StreamWorkspace& stream, std::vector<Buffer>& buffers, std::size_t most_bytes) {
  const std::unique_lock unit(stream.unit, std::try_to_lock);
  if (!unit || stream.bytes() > most_bytes) return false;
  buffers.reserve(buffers.size() + 2 + stream.outgrown.size());
  stream_bytes_ -= stream.bytes();
  buffers.push_back(std::move(stream.block.scratch));
  buffers.push_back(std::move(stream.block.counters));
  std::move(stream.outgrown.begin(), stream.outgrown.end(), std::back_inserter(buffers));
  return stream.gone = true;
}

void WorkspacePool::free_streams(const StreamWorkspace* own) {
  std::vector<Buffer> buffers;
  const std::unique_lock lock(streams_mutex_);
  std::erase_if(streams_, [&](const auto& entry) { return entry.second.get() != own && take(*entry.second, buffers); });
}

void WorkspacePool::trim() {
  free_streams(nullptr);
  std::vector<Block> blocks;  // freed when the lock is open again
  const std::lock_guard lock(captures_mutex_);
  blocks = take_dropped();
}

void WorkspacePool::with_capture(Stream stream, const WorkspaceNeed& need,
                                 FunctionRef<void(const Workspace&)> enqueue) {
  const std::lock_guard lock(captures_mutex_);
  if (need.bytes == 0 && need.counters == 0) return enqueue({});
  GraphWorkspace& own = of_capture(backend_.capture_point(stream), need);
  own.last_node = nullptr;  // stays so if only a part of the call is captured: then no other call may follow it
  enqueue(own.block.workspace());
  if (const CapturePoint after = backend_.capture_point(stream); after.nodes.size() == 1)
    own.last_node = after.nodes[0];
}

WorkspacePool::GraphWorkspace& WorkspacePool::of_capture(const CapturePoint& point, const WorkspaceNeed& need) {
  WorkspaceNeed asked = rounded(need);
  for (auto& [key, own] : graphs_) {
    if (own.capture != point.capture || !own.last_node || !backend_.comes_after(point, own.last_node)) continue;
    if (own.block.holds(need)) return own;
    asked.bytes = std::max(asked.bytes, grown(own.block.scratch.bytes, need.bytes));
    asked.counters =
        std::max(asked.counters, int(grown(own.block.counters.bytes, counter_bytes(need.counters)) / sizeof(unsigned)));
  }

  GraphWorkspace own;
  {
    std::vector<Block> dropped = take_dropped();  // what is not used again is freed
    const auto fits =
        std::find_if(dropped.begin(), dropped.end(), [&](const Block& block) { return block.holds(need); });
    if (fits != dropped.end()) own.block = std::move(*fits);
  }
  if (!own.block.holds(need)) {
    own.block.scratch = allocate(asked.bytes, nullptr);
    own.block.counters = allocate(counter_bytes(asked.counters), nullptr);
  }
  zero_counters(own.block);
  own.capture = point.capture;

  const std::uint64_t key = ++last_key_;
  {
    const std::lock_guard lock(dropped_->mutex);
    dropped_->keys.reserve(dropped_->keys.size() + graphs_.size() + 1);
  }
  const std::size_t bytes = own.block.bytes();
  const auto added = graphs_.emplace(key, std::move(own)).first;
  graph_bytes_ += bytes;
  try {
    backend_.hold_with_graph(point, std::make_shared<DropsWithGraph>(dropped_, key));
  } catch (...) {
    graph_bytes_ -= bytes;
    graphs_.erase(added);
    throw;
  }
  return added->second;
}

std::vector<WorkspacePool::Block> WorkspacePool::take_dropped() {
  std::vector<std::uint64_t> keys;
  std::vector<Block> blocks;
  {
    const std::lock_guard lock(dropped_->mutex);
    keys = dropped_->keys;  // whose capacity stays reserved
    blocks.reserve(keys.size());
    dropped_->keys.clear();
    dropped_->any = false;
  }
  for (const std::uint64_t key : keys) {
    const auto found = graphs_.find(key);
    if (found == graphs_.end()) continue;  // its graph could not take it
    graph_bytes_ -= found->second.block.bytes();
    blocks.push_back(std::move(found->second.block));
    graphs_.erase(found);
  }
  return blocks;
}

void WorkspacePool::free_dropped_now(Stream stream) {
  if (backend_.capture_status(stream) == CaptureStatus::capturing) return;
  std::vector<Block> blocks;
  const std::lock_guard lock(captures_mutex_);
  blocks = take_dropped();
}

}  // namespace jitgemm
