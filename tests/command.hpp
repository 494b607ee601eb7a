#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "sandbox.hpp"

namespace jitgemm::test {

/// Beside this test binary.
inline std::filesystem::path command_path() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "jitgemm";
}

struct Output {
  int status = -1;
  std::string out, err;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

/// The command with a cache directory of its own.
class Command {
 public:
  Output operator()(const std::string& arguments) const {
    const int status = std::system(line(arguments).c_str());
    return output(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  /// Runs it beside this process, under the id that is returned.
  pid_t start(const std::string& arguments) const {
    const std::string exec = line(arguments);
    // Of one that is killed before it opens them, what the one before it said is not its output.
    for (const char* name : {"stdout", "stderr"}) std::filesystem::remove(path(name));
    return spawn([&] { return execl("/bin/sh", "sh", "-c", exec.c_str(), nullptr); });
  }
  /// Of the last one.
  Output output(int status) const { return {status, file_text(path("stdout")), file_text(path("stderr"))}; }
  std::filesystem::path path(const std::string& name) const { return directory_.path() / name; }

 private:
  std::string line(const std::string& arguments) const {
    return "cd '" + directory_.path().string() + "' && JITGEMM_CACHE_DIR='" + path("cache").string() + "' exec '" +
           command_path().string() + "' " + arguments + " >'" + path("stdout").string() + "' 2>'" +
           path("stderr").string() + "' </dev/null";
  }

  TemporaryDirectory directory_;
};

/// Options of a product on the emulator, of sizes that no tile divides.
inline const std::string small_product = " -m 70 -n 66 -k 65 --device emulator ";

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace jitgemm::test

#define NEEDS_COMMAND()                                          \
  if (!std::filesystem::exists(::jitgemm::test::command_path())) \
  SKIP("the jitgemm command is not built: build jitgemm_command too")
