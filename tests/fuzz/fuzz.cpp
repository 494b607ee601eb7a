#include "fuzz.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include "util/environment.hpp"

namespace jitgemm::fuzz {
namespace {

namespace fs = std::filesystem;

fs::path make_scratch() {
  const fs::path in_memory = "/dev/shm";
  std::error_code failed;
  const fs::path parent = access(in_memory.c_str(), W_OK) == 0 ? in_memory : temporary_folder(failed);
  if (failed) throw std::system_error(failed, "TMPDIR");
  std::string name = (parent / "jitgemm-fuzz-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
  return name;
}

void remove_scratch() {
  std::error_code ignored;
  fs::remove_all(scratch(), ignored);
}

}  // namespace

void expect(bool holds, std::string_view what, std::source_location where) {
  if (holds) return;
  std::fprintf(stderr, "%s:%u: not so: %.*s\n", where.file_name(), unsigned(where.line()), int(what.size()),
               what.data());
  std::abort();
}

const fs::path& scratch() {
  static const fs::path& path = *new fs::path(make_scratch());
  static const bool removed_at_exit = std::atexit(remove_scratch) == 0;
  (void)removed_at_exit;
  return path;
}

fs::path write_scratch(const std::string& name, std::string_view bytes) {
  fs::path path = scratch() / name;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), std::streamsize(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
  return path;
}

}  // namespace jitgemm::fuzz

/// Nothing of the machine is to decide what an input does, or to be changed by it.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  for (const char* name :
       {"JITGEMM_CACHE_DIR", "JITGEMM_SYSTEM_CACHE_DIR", "JITGEMM_CACHE_MAX_BYTES", "JITGEMM_CACHE_COMPILER",
        "JITGEMM_TUNING", "JITGEMM_TEMPLATES_DIR", "XDG_CACHE_HOME", "CUDA_HOME", "CUDA_PATH"}) {
    unsetenv(name);
  }
  setenv("HOME", jitgemm::fuzz::scratch().c_str(), 1);
  setenv("JITGEMM_LOG", "off", 1);
  setenv("JITGEMM_CXX", "/nonexistent", 1);  // nothing is compiled here
  setenv("JITGEMM_NVRTC", "/nonexistent", 1);
  return 0;
}
