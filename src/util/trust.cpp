#include "util/trust.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "util/errno_text.hpp"

namespace jitgemm {
namespace {

namespace fs = std::filesystem;

bool is_ours(uid_t owner) { return owner == geteuid() || owner == 0; }

Descriptor refused(std::string* why, std::string reason, int error = EPERM) {
  if (why != nullptr) *why = std::move(reason);
  errno = error;
  return Descriptor(-1);
}

Descriptor failed(std::string* why) {
  const int error = errno;
  return refused(why, errno_text(error), error);
}

}  // namespace

std::string why_not_trusted(const struct stat& status) {
  if (!is_ours(status.st_uid)) return "owned by another user";
  if ((status.st_mode & S_IWOTH) != 0) return "writable by everyone";
  if ((status.st_mode & S_IWGRP) != 0) return "writable by its group";
  return {};
}

Descriptor open_trusted_directory(const fs::path& directory, std::string* why) {
  // To search a directory, which this is for, no right to list it is needed.
  Descriptor opened(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0) return failed(why);
  struct stat status{}, link{};
  if (fstat(opened.get(), &status) != 0 || lstat(directory.c_str(), &link) != 0) return failed(why);
  if (S_ISLNK(link.st_mode) && !is_ours(link.st_uid)) return refused(why, "reached through a link of another user's");
  if (std::string reason = why_not_trusted(status); !reason.empty()) return refused(why, std::move(reason));
  return opened;
}

std::string why_not_trusted(const fs::path& directory) {
  std::string why;
  open_trusted_directory(directory, &why);
  return why;
}

Descriptor open_trusted(const fs::path& file, int flags, std::string* why, mode_t mode) {
  std::string reason;
  const Descriptor directory = open_trusted_directory(file.has_parent_path() ? file.parent_path() : ".", &reason);
  if (directory.get() < 0) {
    const int error = errno;
    return refused(why, error == EPERM ? "its directory is " + reason : reason, error);
  }
  // Not truncated before it is known what it is; and a FIFO would wait for its other end.
  Descriptor opened(openat(directory.get(), file.filename().c_str(),
                           (flags & ~O_TRUNC) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, mode));
  if (opened.get() < 0 && errno == ELOOP) return refused(why, "it is a link");
  struct stat status{};
  if (opened.get() < 0 || fstat(opened.get(), &status) != 0) return failed(why);
  if (S_ISDIR(status.st_mode)) return errno = EISDIR, failed(why);
  if (!S_ISREG(status.st_mode)) return refused(why, "it is not a regular file");
  if (reason = why_not_trusted(status); !reason.empty()) return refused(why, "it is " + reason);
  if ((flags & O_TRUNC) != 0 && ftruncate(opened.get(), 0) != 0) return failed(why);
  return opened;
}

std::string make_directories(const fs::path& directory, mode_t mode) {
  fs::path prefix;
  for (const fs::path& part : directory) {
    prefix /= part;
    if (mkdir(prefix.c_str(), mode) != 0 && errno != EEXIST) {
      const int error = errno;
      struct stat status{};
      // A parent that exists may still refuse mkdir with EROFS or EACCES.
      if (stat(prefix.c_str(), &status) != 0) {
        return "cannot create " + prefix.string() + ": " + errno_text(error);
      }
    }
  }
  return {};
}

}  // namespace jitgemm
