#pragma once

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "util/environment.hpp"
#include "util/log.hpp"

namespace jitgemm::test {

/// Whatever the developer's umask: a cache does not use directories that a group may write to.
inline const mode_t umask_before = umask(022);

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::error_code failed;
    std::string name = (temporary_folder(failed) / "jitgemm-test-XXXXXX").string();
    if (failed) throw std::system_error(failed, "TMPDIR");
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// As in a shell with this umask.
class ScopedUmask {
 public:
  explicit ScopedUmask(mode_t mask) : old_(umask(mask)) {}
  ~ScopedUmask() { umask(old_); }
  ScopedUmask(const ScopedUmask&) = delete;
  ScopedUmask& operator=(const ScopedUmask&) = delete;

 private:
  mode_t old_;
};

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream << bytes;
  if (!stream.flush()) throw std::runtime_error("write " + path.string());
}

inline std::string file_text(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Whether it is gone, or a zombie.
inline bool has_ended(pid_t process) {
  std::ifstream stream("/proc/" + std::to_string(process) + "/stat");
  std::string status;
  std::getline(stream, status);  // which throws nothing where the process ends between opening and reading
  return status.empty() || status.find(") Z ") != std::string::npos;
}

/// Sets the time of last use back.
inline void make_older(const std::filesystem::path& path, std::int64_t seconds) {
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - std::chrono::seconds(seconds));
}

class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    value != nullptr ? setenv(name, value, 1) : unsetenv(name);
  }
  ~ScopedEnvironment() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

/// What the library logs while it lives, instead of on stderr.
class CapturedLog {
 public:
  CapturedLog() {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(stream_);
    sink->set_pattern("%l: %v");
    old_ = std::exchange(logger().sinks(), {std::move(sink)});
  }
  ~CapturedLog() { logger().sinks() = std::move(old_); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;
  std::string text() const { return stream_.str(); }
  int count(const std::string& word) const {
    const std::string all = text();
    int count = 0;
    for (std::size_t at = all.find(word); at != std::string::npos; at = all.find(word, at + word.size())) ++count;
    return count;
  }

 private:
  std::ostringstream stream_;
  std::vector<spdlog::sink_ptr> old_;
};

/// For child processes, where the test framework's own checks report nothing.
inline void expect(bool ok, const char* what, std::source_location where = std::source_location::current()) {
  if (ok) return;
  std::fprintf(stderr, "%s:%u: not so: %s\n", where.file_name(), unsigned(where.line()), what);
  _exit(1);
}

/// Runs body() in a forked child, which ends with what it returns.
template <typename Body>
pid_t spawn(Body body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child > 0) return child;
  int status = 1;
  try {
    status = body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error.what());
  } catch (...) {
  }
  _exit(status);
}

/// The child's exit status, or minus the signal that ended it.
inline int wait_for(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) throw std::runtime_error("waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

inline constexpr int not_allowed = 77;

/// For a child: a tmpfs of so many bytes at `directory` that nobody else sees. Ends the child where that is not
/// allowed.
inline void mount_tmpfs(const std::filesystem::path& directory, std::size_t bytes) {
  const std::string map = std::to_string(geteuid()) + " " + std::to_string(geteuid()) + " 1";
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWNS | CLONE_NEWUSER) != 0) _exit(not_allowed);
    std::ofstream("/proc/self/uid_map") << map;
  }
  const std::string options = "size=" + std::to_string(bytes);
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("none", directory.c_str(), "tmpfs", 0, options.c_str()) != 0) {
    _exit(not_allowed);
  }
  if (chmod(directory.c_str(), 0700) != 0) _exit(not_allowed);
}

inline void remount_read_only(const std::filesystem::path& directory) {
  if (mount("none", directory.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) _exit(not_allowed);
}

/// For a child of root: becomes a user without rights.
inline bool become_nobody() { return setgroups(0, nullptr) == 0 && setgid(65534) == 0 && setuid(65534) == 0; }

}  // namespace jitgemm::test
