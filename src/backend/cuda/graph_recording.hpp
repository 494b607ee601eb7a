#pragma once

#include <functional>

#include "backend/backend.hpp"
#include "backend/cuda/device_context.hpp"

namespace jitgemm::cuda {

/// A graph of what is put on a stream, instantiated.
class GraphRecording final : public Recording {
 public:
  /// `context` outlives this.
  GraphRecording(const DeviceContext& context, const std::function<void(Stream)>& enqueue);
  ~GraphRecording() override;
  GraphRecording(const GraphRecording&) = delete;
  GraphRecording& operator=(const GraphRecording&) = delete;

  void replay(Stream stream) override;

 private:
  const DeviceContext& context_;
  CUgraphExec graph_ = nullptr;
};

}  // namespace jitgemm::cuda
