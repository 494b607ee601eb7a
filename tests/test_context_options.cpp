#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <memory>

#include "catch.hpp"
#include "context_options.hpp"
#include "errors.hpp"
#include "jitgemm/jitgemm.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("Options and variables that make no sense are refused with what would", "[context]") {
  const TemporaryDirectory cache;
  const auto refused = [](const ContextOptions& options, const char* word) {
    const Error error = error_of([&] { Context context(options); });
    CHECK(error.code() == ErrorCode::invalid_option);
    CHECK_THAT(error.what(), ContainsSubstring(word));
  };
  refused({.device = Device::compile_only, .cache_dir = cache.path().string()}, "sm_90a");
  refused({.device = Device::compile_only, .architecture = "sm_oops"}, "sm_oops");
  refused({.device = Device::cuda, .architecture = "sm_80"}, "architecture");
  refused({.device = Device::cuda, .cuda_device = -2}, "cuda_device=-2 is negative");
  refused({.device = Device::emulator, .cuda_device = 0}, "cuda_device=0 is for the device cuda");
  refused({.device = Device::compile_only, .cuda_device = 1, .architecture = "sm_80"}, "leave it at -1");
  const ContextOptions emulator{.device = Device::emulator, .cache_dir = cache.path().string()};
  ContextOptions options = emulator;
  options.emulator_sm_count = 0;
  refused(options, "emulator_sm_count");
  for (const auto& [directory, word] :
       {std::pair(std::string(), "empty path"), std::pair(std::string("/tmp/a\0b", 8), "NUL")}) {
    options = emulator;
    options.cache_dir = directory;
    refused(options, word);
    options.device = Device::compile_only;
    options.architecture = "sm_90a";
    refused(options, word);
  }
  options = emulator;
  options.tuning_budget_seconds = -1;
  refused(options, "tuning_budget_seconds");
  options = emulator;
  options.tuning_total_budget_seconds = std::nan("");
  refused(options, "tuning_total_budget_seconds");
  const ScopedEnvironment tuning("JITGEMM_TUNING", "sometimes");
  refused(emulator, "off, cached or on");
}

TEST_CASE("A relative cache_dir is where it was when it was given", "[context]") {
  const ContextOptions options{.cache_dir = "here/../there/"};
  CHECK(home_of(options) == std::filesystem::current_path() / "there");
}

TEST_CASE("A relative cache_dir without a working directory is an error that asks for a full path", "[context]") {
  const pid_t child = spawn([] {
    const auto gone = std::make_unique<TemporaryDirectory>();
    expect(chdir(gone->path().c_str()) == 0, "chdir");
    std::filesystem::remove_all(gone->path());
    const auto refusal_of = [](const ContextOptions& options) -> std::string {
      try {
        Context context(options);
      } catch (const Error& error) {
        return error.code() == ErrorCode::invalid_option ? error.what() : "";
      } catch (const std::exception&) {
      }
      return "";
    };
    for (const Device device : {Device::emulator, Device::compile_only}) {
      const std::string message = refusal_of({.device = device, .architecture = "sm_90a", .cache_dir = "here"});
      expect(message.find("cache_dir here is relative") != std::string::npos, message.c_str());
      expect(message.find("give a full path") != std::string::npos, message.c_str());
    }
    return 0;
  });
  CHECK(wait_for(child) == 0);
}
