#include "util/atomic_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
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
#include "util/errno_text.hpp"
#include "util/log.hpp"
#include "util/publish_step.hpp"
#include "util/trust.hpp"

namespace jitgemm {

std::atomic<PublishHook> publish_hook{nullptr};

namespace {

constexpr std::string_view temporary_mark = ".tmp-";
constexpr std::size_t temporary_letters = 6;

/// mkostemp() that leaves it to the system what the umask, or the directory, makes of the mode.
int create_unique(int directory, std::string& name, mode_t mode) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  for (int attempt = 0; attempt < 100; ++attempt) {
    for (std::size_t i = 0; i < temporary_letters; ++i) name.end()[-1 - int(i)] = letters[random() % letters.size()];
    const int descriptor = openat(directory, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
  return -1;
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
  struct stat opened{}, named{};
  return fstat(descriptor, &opened) == 0 && lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path, FileMode mode, bool trusted_directory)
    : name_(path.filename().string()),
      temporary_(name_ + std::string(temporary_mark) + std::string(temporary_letters, 'X')) {
  const auto folder = path.has_parent_path() ? path.parent_path() : ".";
  if (trusted_directory) {
    directory_ = open_trusted_directory(folder, &why_);
  } else {
    directory_ = Descriptor(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (directory_.get() < 0) fail();
  }
  publish_step("create");
  if (directory_.get() >= 0) file_ = Descriptor(create_unique(directory_.get(), temporary_, mode.bits));
  if (file_.get() < 0) {
    if (why_.empty()) fail();
    temporary_.clear();
  } else if (mode.exactly && fchmod(file_.get(), mode.bits) != 0) {
    fail();
  }
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) unlinkat(directory_.get(), temporary_.c_str(), 0);
}

bool AtomicFile::fail() {
  why_ = errno_text(errno);
  return false;
}

bool AtomicFile::write(std::string_view bytes) {
  constexpr std::size_t chunk = 1 << 16;
  while (why_.empty() && !bytes.empty()) {
    publish_step("write");
    if (!write_all(file_.get(), bytes.substr(0, chunk))) return fail();
    bytes.remove_prefix(std::min(chunk, bytes.size()));
  }
  return why_.empty();
}

bool AtomicFile::publish() {
  if (!why_.empty()) return false;
  publish_step("sync");
  if (!sync(file_.get()) || !file_.close()) return fail();
  publish_step("rename");
  if (renameat(directory_.get(), temporary_.c_str(), directory_.get(), name_.c_str()) != 0) return fail();
  temporary_.clear();
  publish_step("sync directory");
  // The file is published; whether its name survives a power cut is all that is still open.
  const Descriptor directory(openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) sync(directory.get());
  publish_step("published");
  return true;
}

bool write_atomically(const std::filesystem::path& path, std::string_view bytes, std::string* why, FileMode mode) {
  AtomicFile file(path, mode, true);
  if (file.write(bytes) && file.publish()) return true;
  if (why != nullptr) *why = file.why();
  return false;
}

bool is_temporary_name(std::string_view name) {
  return name.size() > temporary_mark.size() + temporary_letters &&
         name.substr(name.size() - temporary_letters - temporary_mark.size()).starts_with(temporary_mark);
}

std::optional<std::string> read_file(const std::filesystem::path& path, std::uintmax_t max_bytes) {
  struct stat status{};
  const Descriptor file(open_regular(path, &status));
  if (file.get() < 0) return std::nullopt;
  const auto bytes = static_cast<std::uintmax_t>(status.st_size);
  if (bytes > max_bytes) {
    errno = EFBIG;
    return std::nullopt;
  }
  return read_up_to(file.get(), bytes);
}

std::optional<std::string> read_trusted(const std::filesystem::path& path, std::string* why, std::uintmax_t max_bytes) {
  const Descriptor file = open_trusted(path, O_RDONLY, why);
  if (file.get() < 0) return std::nullopt;
  struct stat status{};
  if (fstat(file.get(), &status) == 0) {
    if (std::cmp_greater(status.st_size, max_bytes))
      errno = EFBIG;
    else if (auto text = read_up_to(file.get(), std::size_t(status.st_size)))
      return text;
  }
  const int error = errno;
  if (why != nullptr) *why = errno_text(error);
  errno = error;
  return std::nullopt;
}

std::optional<std::string> read_trusted_head(const std::filesystem::path& path, std::string* why, std::size_t bytes) {
  const Descriptor file = open_trusted(path, O_RDONLY, why);
  if (file.get() < 0) return std::nullopt;
  auto text = read_up_to(file.get(), bytes);
  if (!text && why != nullptr) *why = errno_text(errno);
  return text;
}

InputFile::InputFile(const std::filesystem::path& path) {
  struct stat status{};
  file_ = Descriptor(open_regular(path, &status));
  if (file_.get() < 0)
    error_ = errno;
  else
    bytes_ = static_cast<std::uintmax_t>(status.st_size);
}

std::optional<std::string> InputFile::part(std::uintmax_t offset, std::size_t bytes) const {
  errno = error_;
  if (file_.get() < 0) return std::nullopt;
  if (!std::in_range<off_t>(offset) || lseek(file_.get(), static_cast<off_t>(offset), SEEK_SET) < 0)
    return std::nullopt;
  return read_up_to(file_.get(), std::min<std::uintmax_t>(bytes, bytes_ - std::min(bytes_, offset)));
}

std::optional<std::string> read_part(const std::filesystem::path& path, std::uintmax_t offset, std::size_t bytes) {
  return InputFile(path).part(offset, bytes);
}

FileLock::FileLock(const std::filesystem::path& path, double timeout_seconds) {
  using Clock = std::chrono::steady_clock;
  const std::chrono::duration<double> timeout(std::clamp(timeout_seconds, 0.0, 1e6));
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
  auto pause = std::chrono::milliseconds(1);
  for (;;) {
    std::string why;
    Descriptor file = open_trusted(path, O_RDWR | O_CREAT, &why);
    if (file.get() < 0) {
      if (errno == EPERM) {
        warn_once("lock " + path.parent_path().string() + why, path.string() + " is not used as a lock: " + why +
                                                                   "; delete it, or have its owner and mode corrected");
      }
      return;
    }
    while (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK || Clock::now() >= deadline) return;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::milliseconds(50));
    }
    // A sweep may have removed the file between open() and flock(): a lock on a nameless file excludes nobody.
    if (is_same_file(file.get(), path)) {
      file_ = std::move(file);
      return;
    }
    if (Clock::now() >= deadline) return;
  }
}

FileLock::~FileLock() {
  if (held()) flock(file_.get(), LOCK_UN);  // closing alone would not release it while a forked child holds a copy
}

}  // namespace jitgemm
