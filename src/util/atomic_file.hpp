#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "util/descriptor.hpp"

namespace jitgemm {

/// Who may read and write a new file; that of an older one does not count.
struct FileMode {
  mode_t bits = 0600;
  bool exactly = false;  ///< whatever the umask says
};

/// Publishes a whole file or nothing: unique temporary beside it, fsync, rename, fsync of the directory.
/// False, with the reason in *why, if that fails; the temporary is removed and an older file stays. For caches: what
/// has that name is replaced, be it a link or a device, and the directory is to be trusted, see
/// open_trusted_directory(). For a file that a user names see OutputFile.
bool write_atomically(const std::filesystem::path& path, std::string_view bytes, std::string* why, FileMode mode = {});

/// The same in pieces, in a directory of anyone's unless it says that it is to be trusted. What it has of the file by
/// then goes with it unless publish() was called and returned true.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path, FileMode mode = {}, bool trusted_directory = false);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  bool write(std::string_view bytes);
  bool publish();
  const std::string& why() const { return why_; }  ///< what write() or publish() failed of; it then always fails

 private:
  bool fail();

  std::string name_, temporary_, why_;  ///< names within the directory
  Descriptor directory_{-1}, file_{-1};
};

/// Whether this is the name of a temporary of write_atomically(), which a killed process may leave behind.
bool is_temporary_name(std::string_view name);

/// A regular file's bytes. nullopt, with the reason in errno, for anything else, and (EFBIG) for more than max_bytes.
std::optional<std::string> read_file(const std::filesystem::path& path, std::uintmax_t max_bytes = UINTMAX_MAX);

/// The same of a file of the library's own, see open_trusted(). Also the reason in *why.
std::optional<std::string> read_trusted(const std::filesystem::path& path, std::string* why,
                                        std::uintmax_t max_bytes = UINTMAX_MAX);

/// At most the first `bytes` bytes of such a file.
std::optional<std::string> read_trusted_head(const std::filesystem::path& path, std::string* why, std::size_t bytes);

/// A regular file, to read in parts: one and the same, even if another takes its name meanwhile.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  std::uintmax_t bytes() const { return bytes_; }
  /// The bytes from `offset` on, at most so many. nullopt, with the reason in errno, also if there is no such file.
  std::optional<std::string> part(std::uintmax_t offset, std::size_t bytes) const;

 private:
  Descriptor file_{-1};
  std::uintmax_t bytes_ = 0;
  int error_ = 0;
};

/// One part of one.
std::optional<std::string> read_part(const std::filesystem::path& path, std::uintmax_t offset, std::size_t bytes);

/// An advisory lock on a file of the library's own, released on destruction or death of the process. An empty lock if
/// it could not be had within the time limit or cannot be used at all (a read-only or odd file system, or, with one
/// warning, a file that is not to be trusted): a lock here only saves work.
class FileLock {
 public:
  FileLock(const std::filesystem::path& path, double timeout_seconds);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  bool held() const { return file_.get() >= 0; }

 private:
  Descriptor file_{-1};
};

}  // namespace jitgemm
