#pragma once

#include <string>
#include <string_view>

#include "util/descriptor.hpp"

namespace jitgemm::emulator {

/// A new directory of this process, removed with all that is in it. What a process that was killed has left behind goes
/// when the next process makes its first one.
class TemporaryDirectory {
 public:
  TemporaryDirectory();  ///< throws Error{io}
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
  Descriptor lock_{-1};  // says that the process lives
};

void write_file(const std::string& path, std::string_view text);  ///< throws Error{io}

/// For a process that is about to end without destructors: removes all that there are. No thread makes one afterwards.
void remove_temporary_directories();

}  // namespace jitgemm::emulator
