#include "util/atomic_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "util/descriptor.hpp"
#include "util/publish_step.hpp"

namespace jitgemm {

std::atomic<PublishHook> publish_hook{nullptr};

namespace {

constexpr std::string_view temporary_mark = ".tmp-";
constexpr std::size_t temporary_letters = 6;

/// mkostemp() that leaves it to the system what the umask, or the directory, makes of the mode.
int create_unique(std::string& name, mode_t mode) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  for (int attempt = 0; attempt < 100; ++attempt) {
    for (std::size_t i = 0; i < temporary_letters; ++i) name.end()[-1 - int(i)] = letters[random() % letters.size()];
    const int descriptor = open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
  return -1;
}

bool write_all(int descriptor, std::uintmax_t before, std::string_view bytes) {
  // Past this limit write() raises SIGXFSZ, which ends a process that does not expect it.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      before + bytes.size() > limit.rlim_cur) {
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

AtomicFile::AtomicFile(std::filesystem::path path, FileMode mode)
    : path_(std::move(path)),
      temporary_(path_.string() + std::string(temporary_mark) + std::string(temporary_letters, 'X')) {
  publish_step("create");
  file_ = Descriptor(create_unique(temporary_, mode.bits));
  if (file_.get() < 0) {
    fail();
    temporary_.clear();
  } else if (mode.exactly && fchmod(file_.get(), mode.bits) != 0) {
    fail();
  }
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

bool AtomicFile::fail() {
  why_ = std::generic_category().message(errno);
  return false;
}

bool AtomicFile::write(std::string_view bytes) {
  if (!why_.empty()) return false;
  if (!write_all(file_.get(), written_, bytes)) return fail();
  written_ += bytes.size();
  return true;
}

bool AtomicFile::publish() {
  if (!why_.empty()) return false;
  publish_step("sync");
  if (!sync(file_.get()) || !file_.close()) return fail();
  publish_step("rename");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return fail();
  temporary_.clear();
  publish_step("sync directory");
  // The file is published; whether its name survives a power cut is all that is still open.
  const auto folder = path_.has_parent_path() ? path_.parent_path() : ".";
  const Descriptor directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) sync(directory.get());
  publish_step("published");
  return true;
}

bool write_atomically(const std::filesystem::path& path, std::string_view bytes, std::string* why, FileMode mode) {
  AtomicFile file(path, mode);
  if (file.write(bytes) && file.publish()) return true;
  if (why != nullptr) *why = file.why();
  return false;
}

bool is_temporary_name(std::string_view name) {
  return name.size() > temporary_mark.size() + temporary_letters &&
         name.substr(name.size() - temporary_letters - temporary_mark.size()).starts_with(temporary_mark);
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

std::optional<std::string> read_part(const std::filesystem::path& path, std::uintmax_t offset, std::size_t bytes) {
  struct stat status {};
  const Descriptor file(open_regular(path, &status));
  if (file.get() < 0) return std::nullopt;
  if (!std::in_range<off_t>(offset) || lseek(file.get(), static_cast<off_t>(offset), SEEK_SET) < 0) return std::nullopt;
  const auto size = static_cast<std::uintmax_t>(status.st_size);
  return read_up_to(file.get(), std::min<std::uintmax_t>(bytes, size - std::min(size, offset)));
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
