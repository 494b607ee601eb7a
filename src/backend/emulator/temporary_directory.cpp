#include "backend/emulator/temporary_directory.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <new>
#include <set>

#include "jitgemm/error.hpp"
#include "util/directory.hpp"
#include "util/environment.hpp"
#include "util/errno_text.hpp"

namespace jitgemm::emulator {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "jitgemm-compile-";
constexpr std::string_view letters = "XXXXXX";
constexpr std::time_t grace_seconds = 60;  // between a directory's making and its lock

struct Registry {
  std::mutex mutex;
  std::set<std::string> paths;
  bool swept = false;
};
Registry& registry() {
  static Registry& instance = *new Registry;  // never destroyed: threads may compile while the process ends
  return instance;
}

/// Locked for as long as it is open; below 0 if another process has it, or it is none of this user's directories.
Descriptor lock(const fs::path& path) {
  Descriptor directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (directory.get() >= 0 && flock(directory.get(), LOCK_EX | LOCK_NB) != 0) directory.close();
  return directory;
}

bool is_left_behind(const fs::path& path, const Descriptor& locked) {
  struct stat status, named;
  return locked.get() >= 0 && fstat(locked.get(), &status) == 0 && lstat(path.c_str(), &named) == 0 &&
         status.st_ino == named.st_ino && status.st_dev == named.st_dev && status.st_uid == geteuid() &&
         status.st_mtime + grace_seconds < std::time(nullptr);
}

/// Removes the directories in `parent` whose processes are gone.
void sweep(const fs::path& parent) {
  for (const std::string& name : names_in(parent)) {
    if (!name.starts_with(prefix) || name.size() != prefix.size() + letters.size()) continue;
    const fs::path path = parent / name;
    const Descriptor locked = lock(path);
    std::error_code stays;
    if (is_left_behind(path, locked)) fs::remove_all(path, stays);
  }
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  const std::lock_guard guard(registry().mutex);
  std::error_code failed;
  const fs::path parent = temporary_folder(failed);
  if (!failed && !registry().swept) {
    sweep(parent);
    registry().swept = true;
  }
  path_ = (parent / (std::string(prefix) + std::string(letters))).string();
  if (failed || !mkdtemp(path_.data())) {
    const int error = failed ? failed.value() : errno;
    const std::string why = errno_text(error);
    const std::string where = failed ? environment("TMPDIR").value_or("/tmp") : parent.string();
    throw Error(ErrorCode::io,
                "cannot make a temporary directory in " + where + ": " + why + "; " +
                    (is_out_of_descriptors(error) ? more_descriptors : "set TMPDIR to one that can be written"));
  }
  try {
    lock_ = lock(path_);
    registry().paths.insert(path_);
  } catch (...) {
    rmdir(path_.c_str());
    throw;
  }
}

TemporaryDirectory::~TemporaryDirectory() {
  const std::lock_guard guard(registry().mutex);
  try {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  } catch (const std::bad_alloc&) {  // then it stays for the sweep of a later process
  }
  registry().paths.erase(path_);
}

void write_file(const std::string& path, std::string_view text) {
  errno = 0;
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (file.get() >= 0 && write_all(file.get(), text)) return;
  const int error = errno;
  throw Error(ErrorCode::io,
              "cannot write " + path + ": " + (error ? errno_text(error) : "it is full") + "; " +
                  (is_out_of_descriptors(error) ? more_descriptors : "set TMPDIR to a directory with space"));
}

void remove_temporary_directories() {
  registry().mutex.lock();  // for good
  std::error_code ignored;
  for (const std::string& path : registry().paths) {
    // Its thread may be writing to it.
    for (int attempt = 0; attempt < 100 && fs::remove_all(path, ignored) == std::uintmax_t(-1); ++attempt) usleep(1000);
  }
}

}  // namespace jitgemm::emulator
