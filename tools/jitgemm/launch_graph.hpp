#pragma once

#include <functional>
#include <memory>

#include "jitgemm/types.hpp"

namespace jitgemm::cli {

/// Makes the first CUDA device's primary context current for this thread, which the graph functions and cuBLAS ask for.
/// The context is kept until the process ends.
void make_cuda_current();

/// A CUDA graph of what `enqueue` puts on the stream.
class LaunchGraph {
 public:
  LaunchGraph(Stream stream, const std::function<void()>& enqueue);
  ~LaunchGraph();
  LaunchGraph(LaunchGraph&&) noexcept;

  void launch();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace jitgemm::cli
