#include "util/line_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "util/atomic_file.hpp"
#include "util/descriptor.hpp"
#include "util/errno_text.hpp"
#include "util/publish_step.hpp"
#include "util/trust.hpp"

namespace jitgemm {
namespace {

constexpr double lock_timeout_seconds = 2;
constexpr std::size_t chunk_bytes = 1 << 20;
constexpr off_t compared_bytes = 256;  // the end of what was read before, to know the file again

bool fail(std::string* why, const std::string& reason = errno_text(errno)) {
  if (why) *why = reason;
  return false;
}

/// As much as there is, up to `bytes`. False if reading fails.
bool read_at(int descriptor, off_t offset, std::size_t bytes, std::string& text) {
  text.resize(bytes);
  std::size_t got = 0;
  while (got < bytes) {
    const ssize_t count = ::pread(descriptor, text.data() + got, bytes - got, offset + off_t(got));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    if (count == 0) break;
    got += std::size_t(count);
  }
  text.resize(got);
  return true;
}

Descriptor open_regular(const std::filesystem::path& path, std::string* why) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // or a FIFO waits for its writer
  struct stat status{};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) return fail(why), Descriptor(-1);
  if (!S_ISREG(status.st_mode)) return fail(why, "it is not a regular file"), Descriptor(-1);
  return file;
}

std::string_view without_return(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

LineFile LineFile::of_anyone(std::filesystem::path path) {
  LineFile file(std::move(path));
  file.trusted_ = false;
  return file;
}

bool LineFile::append(const std::vector<std::string>& lines, std::string* why) const {
  return append([&] { return lines; }, why);
}

bool LineFile::append(const std::function<std::vector<std::string>()>& lines, std::string* why) const {
  // Who may read the file may search its directory. If it cannot be made, opening the file says so.
  make_directories(path_.parent_path(), 0700 | (mode_ & 0044) | (mode_ & 0044) >> 2);
  publish_step("lock");
  const FileLock lock(path_.string() + ".lock", lock_timeout_seconds);
  publish_step("open");
  const Descriptor file = open_trusted(path_, O_RDWR | O_APPEND | O_CREAT, why, mode_);
  if (file.get() < 0) return false;
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return fail(why);
  std::string last = "\n";
  if (status.st_size > 0 && !read_at(file.get(), status.st_size - 1, 1, last)) return fail(why);

  const std::vector<std::string> added = lines();
  if (added.empty()) return true;
  std::string text;
  // What was cut short gets a line of its own. Without the lock another's may be cut short after this look.
  if (last != "\n" || !lock.held()) text += '\n';
  for (const std::string& line : added) text += line + '\n';
  publish_step("write");
  if (!write_all(file.get(), text)) return fail(why);
  publish_step("sync");
  // Some file systems have no fsync: nothing more can be done there.
  if (::fsync(file.get()) != 0 && errno != EINVAL && errno != ENOTSUP) return fail(why);
  publish_step("appended");
  return true;
}

bool LineFile::read(const std::function<void()>& restart, const std::function<void(const Line&)>& visit,
                    std::string* why) {
  const auto begin_again = [&] {
    if (position_.inode != 0) restart();
    position_ = {};
  };
  struct stat status{};
  if ((trusted_ ? ::lstat : ::stat)(path_.c_str(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return fail(why);
    begin_again();
    return true;
  }
  const auto known = [&] { return status.st_dev == position_.device && status.st_ino == position_.inode; };
  if (known() && status.st_size == position_.size) return true;

  const Descriptor file = trusted_ ? open_trusted(path_, O_RDONLY, why) : open_regular(path_, why);
  if (file.get() < 0) return false;
  if (::fstat(file.get(), &status) != 0) return fail(why);
  if (!known() || !continues(file.get(), status.st_size)) begin_again();
  position_.device = status.st_dev;
  position_.inode = status.st_ino;
  if (!read_on(file.get(), status.st_size, visit)) return fail(why);
  position_.size = status.st_size;
  return true;
}

/// Whether what lies before the offset is what was read. Inodes are used again, and files rewritten in place.
bool LineFile::continues(int descriptor, off_t size) const {
  if (size < position_.offset) return false;
  const std::string& before = position_.before;
  std::string now;
  return read_at(descriptor, position_.offset - off_t(before.size()), before.size(), now) && now == before;
}

bool LineFile::read_on(int descriptor, off_t size, const std::function<void(const Line&)>& visit) {
  Position& at = position_;
  const auto skip_to = [&](off_t offset, const char* why) {
    if (!at.in_long_line) visit({{}, at.lines + 1, true, why});
    at.offset = offset;
    at.in_long_line = true;
  };
  if (size - at.offset > off_t(most_unread_bytes)) {
    skip_to(size - off_t(most_unread_bytes), "it lies before the last 256 MiB of the file");
  }
  std::string chunk;
  std::string_view rest;
  while (at.offset < size) {
    const std::size_t bytes = std::size_t(std::min(off_t(chunk_bytes), size - at.offset));
    if (!read_at(descriptor, at.offset, bytes, chunk)) return false;
    if (chunk.empty()) break;  // cut off meanwhile
    rest = chunk;
    for (std::size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
      // What visit() throws leaves the line to be read again.
      if (at.in_long_line) {
        at.in_long_line = false;
      } else if (end > most_line_bytes) {
        visit({{}, at.lines + 1, true, "it is longer than 64 KiB"});
      } else {
        visit({without_return(rest.substr(0, end)), at.lines + 1});
      }
      ++at.lines;
      at.offset += off_t(end) + 1;
    }
    if (at.in_long_line || rest.size() > most_line_bytes) {
      skip_to(at.offset + off_t(rest.size()), "it is longer than 64 KiB");
      rest = {};
    } else if (chunk.size() < bytes || at.offset + off_t(rest.size()) >= size) {
      break;
    }
  }
  const std::size_t compared = std::size_t(std::min(compared_bytes, at.offset));
  if (!read_at(descriptor, at.offset - off_t(compared), compared, at.before)) return false;
  if (!rest.empty()) visit({without_return(rest), at.lines + 1, false});
  return true;
}

}  // namespace jitgemm
