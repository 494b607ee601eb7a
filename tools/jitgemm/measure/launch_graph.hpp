#pragma once

#include <functional>
#include <memory>

#include "jitgemm/context.hpp"

namespace jitgemm::cli {

/// Makes a CUDA device's primary context current for this thread, which the graph functions and cuBLAS ask for, unless
/// one is. It is kept until the process ends.
void make_cuda_current(int gpu = 0);

/// A Context whose device is then current for this thread.
Context open_context(const ContextOptions& options);

/// From now on what any thread puts on the stream, one of its own and non-blocking, becomes part of a graph. Nothing is
/// forbidden meanwhile.
void begin_shared_capture(Stream stream);

/// A CUDA graph of what `enqueue` puts on the stream.
class LaunchGraph {
 public:
  LaunchGraph(Stream stream, const std::function<void()>& enqueue);
  /// Of what any threads put on the stream since begin_shared_capture().
  static LaunchGraph end_shared_capture(Stream stream);
  ~LaunchGraph();
  LaunchGraph(LaunchGraph&&) noexcept;

  void launch();

 private:
  struct Impl;
  explicit LaunchGraph(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace jitgemm::cli
