#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "util/atomic_file.hpp"
#include "util/descriptor.hpp"

namespace jitgemm {

/// A file that a user names, to be written. A regular file, or one that is not there yet, appears whole or not at all;
/// it keeps the mode of the one that it replaces, else the umask says. Links are followed. Anything else that is there,
/// as a device, a pipe or /dev/stdout, is written to as it is; a directory is not.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path);
  bool write(std::string_view bytes);
  bool publish();
  const std::string& why() const { return file_ ? file_->why() : why_; }  ///< see AtomicFile

 private:
  bool fail();

  std::optional<AtomicFile> file_;
  Descriptor direct_{-1};
  std::string why_;
};

/// All of one. False, with the reason in *why, if that fails.
bool write_output(const std::filesystem::path& path, std::string_view bytes, std::string* why);

}  // namespace jitgemm
