#pragma once

#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

namespace jitgemm {

/// A file descriptor, closed with it; below 0: none.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    close();
    value_ = std::exchange(other.value_, -1);
    return *this;
  }
  int get() const { return value_; }
  bool close() {
    const int value = std::exchange(value_, -1);
    return value < 0 || ::close(value) == 0 || errno == EINTR;
  }

 private:
  int value_;
};

/// False, with the reason in errno, if not all of it could be written.
inline bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(std::size_t(count));
  }
  return true;
}

}  // namespace jitgemm
