#include "inspect/disassemble.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "jitgemm/error.hpp"
#include "util/environment.hpp"
#include "util/errno_text.hpp"

namespace jitgemm::cli {
namespace {

namespace fs = std::filesystem;

fs::path on_path(const char* program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder) / program;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

/// A file that is gone with it.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& bytes) {
    std::error_code failed;
    std::string name = (temporary_folder(failed) / "jitgemm-XXXXXX").string();
    const int descriptor = failed ? -1 : mkstemp(name.data());
    if (descriptor < 0) {
      throw Error(ErrorCode::io, fmt::format("cannot write a temporary file: {}; set TMPDIR to a writable folder",
                                             errno_text(failed ? failed.value() : errno)));
    }
    close(descriptor);
    path_ = name;
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~TemporaryFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) throw Error(ErrorCode::io, "cannot run " + command);
  std::string text;
  std::array<char, 4096> buffer;
  for (std::size_t bytes; (bytes = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    text.append(buffer.data(), bytes);
  if (pclose(pipe) != 0) throw Error(ErrorCode::io, command + " failed: is it of a CUDA toolkit that knows this GPU?");
  return text;
}

}  // namespace

std::string disassemble(const std::string& cubin) {
  std::string command;
  if (const fs::path nvdisasm = on_path("nvdisasm"); !nvdisasm.empty()) {
    command = fmt::format("'{}' --print-code", nvdisasm.string());
  } else if (const fs::path cuobjdump = on_path("cuobjdump"); !cuobjdump.empty()) {
    command = fmt::format("'{}' -sass", cuobjdump.string());
  } else {
    throw Error(ErrorCode::no_compiler,
                "SASS needs nvdisasm or cuobjdump on PATH: add a CUDA toolkit's bin folder, or use --format ptx");
  }
  const TemporaryFile file(cubin);
  return output_of(fmt::format("{} '{}'", command, file.path().string()));
}

}  // namespace jitgemm::cli
