#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string_view>
#include <vector>

#include "backend/backend.hpp"
#include "measure/memory.hpp"
#include "soak/patterns.hpp"

namespace jitgemm::cli {

/// What a call of the soak shares with those of other threads, beside the Context.
enum class Sharing : std::uint8_t {
  nothing,         ///< a stream of the thread's own
  stream,          ///< one stream for all threads
  default_stream,  ///< by both its names
  thread_default,  ///< the per-thread default stream
  workspace,       ///< one stream, and a caller's workspace on it
  capture,         ///< a graph that several threads capture at once
};
inline constexpr std::size_t sharing_count = 6;
inline constexpr std::array<std::string_view, sharing_count> sharing_names{
    "nothing", "stream", "default-stream", "thread-default", "workspace", "capture"};

/// A call of the soak as it was made.
struct SoakCall {
  const SoakPattern* pattern = nullptr;
  Problem problem;
  Operands operands;
  bool checked = false;
};

/// One graph after another, of so many calls, which any threads add at once. The thread that adds the last one replays
/// it. On a GPU alone.
class SharedCapture {
 public:
  static constexpr int calls_of_graph = 16;
  /// Puts a call whose D is this on the stream.
  using Enqueue = std::function<SoakCall(Stream stream, void* d)>;
  /// Before and after the replay of a graph with this call.
  using Visit = std::function<void(const SoakCall&)>;

  SharedCapture(Backend& backend, std::size_t bytes_of_d);
  ~SharedCapture();
  SharedCapture(const SharedCapture&) = delete;
  SharedCapture& operator=(const SharedCapture&) = delete;

  /// False: the graph is full, and being replayed.
  bool add(const Enqueue& enqueue, const Visit& before, const Visit& after);

 private:
  void replay(const Visit& before, const Visit& after);

  Backend& backend_;
  Stream stream_;
  std::vector<DeviceMemory> d_;
  std::array<std::optional<SoakCall>, calls_of_graph> calls_;
  std::shared_mutex mutex_;  // held alone while a graph ends
  std::atomic<int> begun_ = 0, added_ = 0;
};

}  // namespace jitgemm::cli
