#include "util/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <system_error>

#include "util/errno_text.hpp"

namespace jitgemm {
namespace {

namespace fs = std::filesystem;

constexpr int most_links = 40;

/// What /dev/stdout, /dev/fd/3 and the like lead to. To open such a file anew would begin at its start.
std::optional<int> own_descriptor(const fs::path& path) {
  const std::string name = path.filename().string();
  int number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number < 0) return std::nullopt;
  std::error_code none;
  if (!fs::equivalent(path.parent_path(), "/proc/self/fd", none)) return std::nullopt;
  return number;
}

/// Replaces a link by what it leads to, there or not; an own descriptor's stays.
std::optional<int> follow_links(fs::path& path) {
  for (int i = 0; i < most_links; ++i) {
    if (const auto descriptor = own_descriptor(path)) return descriptor;
    std::error_code no_link;
    const fs::path next = fs::read_symlink(path, no_link);
    if (no_link) break;
    path = path.parent_path() / next;
  }
  return std::nullopt;
}

}  // namespace

OutputFile::OutputFile(const fs::path& path) {
  struct stat status{};
  const bool exists = stat(path.c_str(), &status) == 0;
  if (!exists && errno != ENOENT) {
    fail();
    return;
  }
  if (exists && S_ISDIR(status.st_mode)) {
    errno = EISDIR;
    fail();
    return;
  }
  fs::path target = path;
  if (const auto descriptor = follow_links(target)) {
    if (*descriptor == STDOUT_FILENO) std::fflush(stdout);  // what was printed before comes before
    direct_ = Descriptor(fcntl(*descriptor, F_DUPFD_CLOEXEC, 0));
  } else if (exists && !S_ISREG(status.st_mode)) {
    direct_ = Descriptor(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  } else {
    file_.emplace(target, exists ? FileMode{status.st_mode & 0777, true} : FileMode{0666});
    return;
  }
  if (direct_.get() < 0) fail();
}

bool OutputFile::fail() {
  why_ = errno_text(errno);
  return false;
}

bool OutputFile::write(std::string_view bytes) {
  if (file_) return file_->write(bytes);
  if (!why_.empty()) return false;
  return write_all(direct_.get(), bytes) || fail();
}

bool OutputFile::publish() {
  if (file_) return file_->publish();
  if (!why_.empty()) return false;
  return direct_.close() || fail();
}

bool write_output(const fs::path& path, std::string_view bytes, std::string* why) {
  OutputFile file(path);
  if (file.write(bytes) && file.publish()) return true;
  if (why != nullptr) *why = file.why();
  return false;
}

}  // namespace jitgemm
