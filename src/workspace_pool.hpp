#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "backend/backend.hpp"
#include "jit/arguments.hpp"
#include "util/function_ref.hpp"

namespace jitgemm {

/// What a call needs of a workspace.
struct WorkspaceNeed {
  std::size_t bytes = 0;
  int counters = 0;
};

/// Scratch for split tiles and packed operands. Calls on one stream follow each other, so they share a workspace, and
/// so do calls that are captured one after the other on a path of a graph. All that a call launches is given to its
/// stream as one unit: no other call's packing or partial sums come in between, whichever threads share the stream.
/// Thread-safe.
///
/// A stream's workspace is found by the stream's id, as handles are reused. Nothing says that a stream has been
/// destroyed, so streams' workspaces are bounded in sum and the least recently used goes first. One that has become too
/// small is kept beside its successor, which is at least twice as large, since earlier launches may still use it. A
/// graph's workspace lives as long as the graph, its clones and its instances.
class WorkspacePool {
 public:
  /// `bound`: bytes that streams' workspaces take at most, unless the calls in progress need more.
  WorkspacePool(Backend& backend, std::size_t bound) : backend_(backend), bound_(bound) {}

  /// Calls `enqueue` with a workspace that has what is needed, while no other call on the stream or in the capture
  /// does. If it throws, counters may not be zero: they are zeroed before the next call. What a capture has taken of it
  /// stays valid.
  void with_workspace(Stream stream, const WorkspaceNeed& need, FunctionRef<void(const Workspace&)> enqueue);

  /// Frees all that no call in progress and no graph uses. Waits for the device.
  void trim();

  /// Frees the workspaces of graphs that are gone, outside of a capture. Costs one load if there are none.
  void free_dropped(Stream stream) {
    if (dropped_->any.load(std::memory_order_relaxed)) free_dropped_now(stream);
  }

  std::size_t stream_bytes() const { return stream_bytes_; }
  std::size_t graph_bytes() const { return graph_bytes_; }  ///< until graphs are gone and free_dropped() has seen it

 private:
  struct Release {
    Backend* backend;
    void operator()(void* memory) const noexcept { backend->release(memory); }  // waits for launches that use it
  };
  struct Buffer {
    std::unique_ptr<void, Release> memory;
    std::size_t bytes = 0;
  };
  struct Block {
    Buffer scratch, counters;

    std::size_t bytes() const { return scratch.bytes + counters.bytes; }
    bool holds(const WorkspaceNeed& need) const;
    Workspace workspace() const { return {scratch.memory.get(), static_cast<unsigned*>(counters.memory.get())}; }
  };

  struct StreamWorkspace {
    std::mutex unit;     // held from a call's first launch to its last
    bool gone = false;   // no longer in streams_
    bool dirty = false;  // the counters may not be zero
    std::atomic<std::uint64_t> last_use = 0;
    Block block;
    std::vector<Buffer> outgrown;  // earlier launches may still use them

    std::size_t bytes() const;
  };

  struct GraphWorkspace {
    Block block;
    std::uint64_t capture = 0;
    void* last_node = nullptr;  // of the call that used it last; null: not known
  };

  /// Graphs that are gone leave word here, and may do so when the pool is gone, too.
  struct Dropped {
    std::atomic<bool> any = false;
    std::mutex mutex;
    std::vector<std::uint64_t> keys;  // of graphs_
  };
  struct DropsWithGraph;

  /// Out of memory, the workspaces of all streams but `own` go first.
  Buffer allocate(std::size_t bytes, const StreamWorkspace* own);
  void zero_counters(const Block& block);

  std::shared_ptr<StreamWorkspace> of_stream(std::uint64_t id);
  void grow(StreamWorkspace& own, const WorkspaceNeed& need);
  void make_room(std::size_t bytes, StreamWorkspace& own);
  /// Takes a stream's workspace away, unless a call is about to use it. The caller holds streams_mutex_, and frees.
  bool take(StreamWorkspace& stream, std::vector<Buffer>& buffers, std::size_t most_bytes = SIZE_MAX);
  void free_streams(const StreamWorkspace* own);

  void with_capture(Stream stream, const WorkspaceNeed& need, FunctionRef<void(const Workspace&)> enqueue);
  GraphWorkspace& of_capture(const CapturePoint& point, const WorkspaceNeed& need);
  std::vector<Block> take_dropped();
  void free_dropped_now(Stream stream);

  Backend& backend_;
  const std::size_t bound_;
  std::atomic<std::uint64_t> uses_ = 0;
  std::atomic<std::size_t> stream_bytes_ = 0, graph_bytes_ = 0;

  std::shared_mutex streams_mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<StreamWorkspace>> streams_;  // by stream id

  /// Of all pools, since a graph is not thread-safe and Contexts may share one. A captured launch does not wait for
  /// anything.
  static inline std::mutex captures_mutex_;
  std::map<std::uint64_t, GraphWorkspace> graphs_;  // by a key of its own
  std::uint64_t last_key_ = 0;
  std::shared_ptr<Dropped> dropped_ = std::make_shared<Dropped>();
};

}  // namespace jitgemm
