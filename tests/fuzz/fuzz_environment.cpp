// Environment variables: NAME=value, one a line.
#include <array>
#include <cstdlib>

#include "backend/backend.hpp"
#include "backend/cuda/nvrtc.hpp"
#include "fuzz.hpp"
#include "jit/cache_directory.hpp"
#include "jit/kernel_cache.hpp"
#include "jitgemm/jitgemm.hpp"
#include "util/log.hpp"

using namespace jitgemm;

namespace {

constexpr std::array variables{"JITGEMM_CACHE_DIR",
                               "JITGEMM_SYSTEM_CACHE_DIR",
                               "JITGEMM_CACHE_MAX_BYTES",
                               "JITGEMM_CACHE_COMPILER",
                               "JITGEMM_TUNING",
                               "JITGEMM_LOG",
                               "JITGEMM_NVRTC",
                               "JITGEMM_EMULATOR_SEED",
                               "JITGEMM_EMULATOR_RESIDENT",
                               "JITGEMM_EMULATOR_ASYNC",
                               "XDG_CACHE_HOME",
                               "HOME",
                               "CUDA_HOME",
                               "CUDA_PATH"};

/// A value, or an error about the option in one line.
template <typename Call>
void check(Call call) {
  try {
    call();
  } catch (const Error& error) {
    fuzz::expect(error.code() == ErrorCode::invalid_option, "the error is about the variable");
    fuzz::expect(std::string_view(error.what()).find('\n') == std::string_view::npos, "an error is one line");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const char* name : variables) unsetenv(name);
  std::string_view text = fuzz::text_of(data, size);
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t equals = std::min(line.find('='), line.size());
    const std::string value(line.substr(std::min(equals + 1, line.size())));
    for (const char* name : variables)
      if (line.substr(0, equals) == name) setenv(name, value.c_str(), 1);
  }
  check([] {
    const auto path = default_cache_directory();
    fuzz::expect(path.empty() || path.is_absolute(), "a cache directory is an absolute path");
  });
  check([] {
    const auto path = system_cache_directory();
    fuzz::expect(!path || path->is_absolute(), "a system cache directory is an absolute path");
  });
  check([] {
    const auto bytes = max_cache_bytes();
    fuzz::expect(!bytes || *bytes > 0, "a bound is above 0");
  });
  check(compiler_must_match);
  check(cuda::nvrtc_libraries);
  check([] { make_emulator_backend({}); });
  check([] {
    Context context({.device = Device::compile_only, .architecture = "sm_80", .cache_dir = fuzz::scratch() / "cache"});
    fuzz::expect(context.device().sm_count > 0, "a device has SMs");
  });
  if (const char* level = std::getenv("JITGEMM_LOG")) parse_log_level(level);
  return 0;
}
