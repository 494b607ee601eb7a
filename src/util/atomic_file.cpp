#include "util/atomic_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>

#include "util/descriptor.hpp"
#include "util/publish_step.hpp"

namespace jitgemm {

std::atomic<PublishHook> publish_hook{nullptr};

namespace {

constexpr std::string_view temporary_mark = ".tmp-";
constexpr std::size_t mkostemp_letters = 6;

bool write_all(int descriptor, std::string_view bytes) {
  // Past this limit write() raises SIGXFSZ, which ends a process that does not expect it.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes.size() > limit.rlim_cur) {
    errno = EFBIG;
    return false;
  }
  constexpr std::size_t chunk = 1 << 16;
  while (!bytes.empty()) {
    publish_step("write");
    const ssize_t count = ::write(descriptor, bytes.data(), std::min(chunk, bytes.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

// Some file systems have no fsync: nothing more can be done there.
bool sync(int descriptor) { return fsync(descriptor) == 0 || errno == EINVAL || errno == ENOTSUP; }

int open_regular(const std::filesystem::path& path, struct stat* status) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // or a FIFO waits for its writer
  if (descriptor < 0) return -1;
  int error = 0;
  if (fstat(descriptor, status) != 0) {
    error = errno;
  } else if (!S_ISREG(status->st_mode)) {
    error = S_ISDIR(status->st_mode) ? EISDIR : EINVAL;
  }
  if (error == 0) return descriptor;
  close(descriptor);
  errno = error;
  return -1;
}

/// Up to `bytes` bytes; a file that is written to meanwhile gives what it gives.
std::optional<std::string> read_up_to(int descriptor, std::size_t bytes) {
  std::string text(bytes, '\0');
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t count = ::read(descriptor, text.data() + done, bytes - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  text.resize(done);
  return text;
}

bool is_same_file(int descriptor, const std::filesystem::path& path) {
  struct stat opened {
  }, named{};
  return fstat(descriptor, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

}  // namespace

bool write_atomically(const std::filesystem::path& path, std::string_view bytes, std::string* why) {
  std::string temporary = path.string() + std::string(temporary_mark) + std::string(mkostemp_letters, 'X');
  const auto fail = [&] {
    if (why != nullptr) *why = std::generic_category().message(errno);
    return false;
  };
  publish_step("create");
  Descriptor file(mkostemp(temporary.data(), O_CLOEXEC));
  if (file.get() < 0) return fail();
  const auto discard = [&] {
    fail();  // before unlink() changes errno
    unlink(temporary.c_str());
    return false;
  };
  if (!write_all(file.get(), bytes)) return discard();
  publish_step("sync");
  if (!sync(file.get()) || !file.close()) return discard();
  publish_step("rename");
  if (rename(temporary.c_str(), path.c_str()) != 0) return discard();
  publish_step("sync directory");
  // The file is published; whether its name survives a power cut is all that is still open.
  const auto folder = path.has_parent_path() ? path.parent_path() : ".";
  const Descriptor directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) sync(directory.get());
  publish_step("published");
  return true;
}

bool is_temporary_name(std::string_view name) {
  return name.size() > temporary_mark.size() + mkostemp_letters &&
         name.substr(name.size() - mkostemp_letters - temporary_mark.size()).starts_with(temporary_mark);
}

std::optional<std::string> read_file(const std::filesystem::path& path, std::uintmax_t max_bytes) {
  struct stat status {};
  const Descriptor file(open_regular(path, &status));
  if (file.get() < 0) return std::nullopt;
  const auto bytes = static_cast<std::uintmax_t>(status.st_size);
  if (bytes > max_bytes) {
    errno = EFBIG;
    return std::nullopt;
  }
  return read_up_to(file.get(), bytes);
}

std::optional<std::string> read_head(const std::filesystem::path& path, std::size_t bytes) {
  struct stat status {};
  const Descriptor file(open_regular(path, &status));
  if (file.get() < 0) return std::nullopt;
  return read_up_to(file.get(), std::min<std::uintmax_t>(bytes, static_cast<std::uintmax_t>(status.st_size)));
}

FileLock::FileLock(const std::filesystem::path& path, double timeout_seconds) {
  using Clock = std::chrono::steady_clock;
  const std::chrono::duration<double> timeout(std::clamp(timeout_seconds, 0.0, 1e6));
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
  auto pause = std::chrono::milliseconds(1);
  for (;;) {
    const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor < 0) return;
    while (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK || Clock::now() >= deadline) {
        close(descriptor);
        return;
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::milliseconds(50));
    }
    // A sweep may have removed the file between open() and flock(): a lock on a nameless file excludes nobody.
    if (is_same_file(descriptor, path)) {
      descriptor_ = descriptor;
      return;
    }
    close(descriptor);
    if (Clock::now() >= deadline) return;
  }
}

FileLock::~FileLock() {
  if (descriptor_ < 0) return;
  flock(descriptor_, LOCK_UN);  // closing alone would not release it while a forked child holds a copy
  close(descriptor_);
}

}  // namespace jitgemm
