#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace jitgemm {

/// Publishes a whole file or nothing: unique temporary beside it, fsync, rename, fsync of the directory.
/// False, with errno's text in *why, if that fails; the temporary is removed and an older file stays.
bool write_atomically(const std::filesystem::path& path, std::string_view bytes, std::string* why);

/// Whether this is the name of a temporary of write_atomically(), which a killed process may leave behind.
bool is_temporary_name(std::string_view name);

/// A regular file's bytes. nullopt, with the reason in errno, for anything else, and (EFBIG) for more than max_bytes.
std::optional<std::string> read_file(const std::filesystem::path& path, std::uintmax_t max_bytes = UINTMAX_MAX);

/// At most the first `bytes` bytes of a regular file.
std::optional<std::string> read_head(const std::filesystem::path& path, std::size_t bytes);

/// An advisory lock on a file, released on destruction or death of the process. An empty lock if it could not be had
/// within the time limit or cannot be used at all (a read-only or odd file system): a lock here only saves work.
class FileLock {
 public:
  FileLock(const std::filesystem::path& path, double timeout_seconds);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  bool held() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

}  // namespace jitgemm
