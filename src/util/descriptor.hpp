#pragma once

#include <signal.h>
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

/// Past the limit on file sizes (ulimit -f) a write raises SIGXFSZ, which ends a process that does not expect it. While
/// this lives, writes of this thread fail with EFBIG and raise nothing; the process's handlers stay as they are.
class FileSizeSignalHeld {
 public:
  FileSizeSignalHeld();
  ~FileSizeSignalHeld();
  FileSizeSignalHeld(const FileSizeSignalHeld&) = delete;
  FileSizeSignalHeld& operator=(const FileSizeSignalHeld&) = delete;

 private:
  sigset_t signal_, old_mask_;
  bool was_pending_ = false;
};

/// False, with the reason in errno, if not all of it could be written. Never raises SIGXFSZ.
bool write_all(int descriptor, std::string_view bytes);

}  // namespace jitgemm
