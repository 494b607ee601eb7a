#include "util/descriptor.hpp"

#include <ctime>

namespace jitgemm {

FileSizeSignalHeld::FileSizeSignalHeld() {
  sigemptyset(&signal_);
  sigaddset(&signal_, SIGXFSZ);
  sigset_t pending;
  was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
  pthread_sigmask(SIG_BLOCK, &signal_, &old_mask_);
}

FileSizeSignalHeld::~FileSizeSignalHeld() {
  const int error = errno;
  const timespec at_once{};
  // The kernel sends it to the thread that writes, so that it is here by now. One that was there before is not ours.
  while (!was_pending_ && sigtimedwait(&signal_, nullptr, &at_once) < 0 && errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
  errno = error;
}

bool write_all(int descriptor, std::string_view bytes) {
  const FileSizeSignalHeld held;
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(std::size_t(count));
  }
  return true;
}

}  // namespace jitgemm
