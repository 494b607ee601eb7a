#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "core/kernel.hpp"

namespace jitgemm::emulator {

/// The host's C++ compiler: JITGEMM_CXX, else the first of c++, g++ and clang++ on PATH, else JITGEMM_FALLBACK_CXX. One
/// whose file is called zig is run as `zig c++`. Thread-safe.
class HostCompiler {
 public:
  /// Name of the kind of shared objects that it makes: those of another kind must not be loaded. Needs no compiler.
  static std::string kind();
  /// The first line of --version. Throws Error{no_compiler}.
  std::string version();
  /// Throws Error{no_compiler}, Error{compile_failed}, Error{io}.
  KernelBinary compile(const KernelSource& source);

 private:
  struct Found {
    std::vector<std::string> command;
    bool is_zig = false;
    std::string version;
    std::vector<std::string> flags;
  };
  const Found& find();

  std::mutex mutex_;
  Found found_;
};

}  // namespace jitgemm::emulator
