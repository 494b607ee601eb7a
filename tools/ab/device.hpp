#pragma once

#include <cuda.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace ab {

/// Memory, streams, graphs and time of the first CUDA device, or of a CPU that only computes. Errors are exceptions.
class Device {
 public:
  static std::unique_ptr<Device> cuda();
  static std::unique_ptr<Device> host();
  virtual ~Device() = default;

  virtual const char* kind() const = 0;                ///< cuda or emulator
  virtual void make_current() = 0;                     ///< for this thread
  virtual std::byte* allocate(std::size_t bytes) = 0;  ///< kept until the process ends
  virtual void copy_to_device(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual CUstream create_stream() = 0;
  virtual void synchronize(CUstream stream) = 0;

  /// A graph of what `enqueue` puts on the stream; replaying it gives its microseconds.
  class Graph {
   public:
    virtual ~Graph() = default;
    virtual double replay_us() = 0;
  };
  virtual std::unique_ptr<Graph> capture(CUstream stream, const std::function<void()>& enqueue) = 0;
};

}  // namespace ab
