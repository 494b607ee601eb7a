#pragma once

#include <cstddef>

#include "jitgemm/types.hpp"

namespace jitgemm {
class Backend;
}

namespace jitgemm::cli {

/// Device memory, freed with it.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Backend& backend, std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Backend* backend_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A stream of one's own; on the emulator, which has none, the default stream.
class OwnStream {
 public:
  explicit OwnStream(Backend& backend);
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  Stream get() const { return stream_; }

 private:
  Backend& backend_;
  Stream stream_ = nullptr;
};

}  // namespace jitgemm::cli
