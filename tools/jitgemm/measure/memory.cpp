#include "measure/memory.hpp"

#include <utility>

#include "backend/backend.hpp"

namespace jitgemm::cli {

DeviceMemory::DeviceMemory(Backend& backend, std::size_t bytes)
    : backend_(&backend), data_(static_cast<std::byte*>(backend.allocate(bytes))), bytes_(bytes) {}

DeviceMemory::~DeviceMemory() {
  if (data_) backend_->release(data_);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : backend_(other.backend_), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

OwnStream::OwnStream(Backend& backend) : backend_(backend) {
  if (!backend.device().emulated) stream_ = backend.create_stream();
}

OwnStream::~OwnStream() {
  if (stream_) backend_.destroy_stream(stream_);
}

}  // namespace jitgemm::cli
