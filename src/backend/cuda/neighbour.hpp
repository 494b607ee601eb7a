#pragma once

#include <mutex>

#include "backend/cuda/device_context.hpp"
#include "jitgemm/types.hpp"

namespace jitgemm::cuda {

/// The kernel of Backend::launch_neighbour(). Its PTX is compiled by the driver, on first need. Thread-safe.
class Neighbour {
 public:
  /// `context` outlives this.
  explicit Neighbour(const DeviceContext& context) : context_(context) {}
  ~Neighbour();
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  /// In the current context.
  void launch(int blocks, Stream stream);

 private:
  CUfunction function();

  const DeviceContext& context_;
  std::mutex mutex_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

}  // namespace jitgemm::cuda
