// The soak, as CI can afford it: some seconds on the emulator.
#include <sys/wait.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "catch.hpp"
#include "sandbox.hpp"

using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

/// Beside this test binary.
fs::path command_path() { return fs::read_symlink("/proc/self/exe").parent_path() / "jitgemm"; }

struct Output {
  int status = -1;
  std::string out, err;
};

/// `jitgemm soak` on the emulator with a cache of its own.
Output soak(const fs::path& directory, const std::string& arguments, const std::string& environment = {}) {
  const fs::path out = directory / "stdout", err = directory / "stderr";
  const std::string line = environment + " JITGEMM_CACHE_DIR='" + (directory / "cache").string() + "' '" +
                           command_path().string() + "' soak --device emulator " + arguments + " >'" + out.string() +
                           "' 2>'" + err.string() + "' </dev/null";
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, file_text(out), file_text(err)};
}

}  // namespace

#define NEEDS_COMMAND() \
  if (!fs::exists(command_path())) SKIP("the jitgemm command is not built: build jitgemm_command too")

TEST_CASE("A short soak on the emulator finds no wrong result and keeps its memory", "[soak]") {
  NEEDS_COMMAND();
  const TemporaryDirectory directory;
  const Output output =
      soak(directory.path(), "--seconds 4 --threads 3 --patterns 8 --max-size 48 --check-every 5 --seed 7 --json");
  INFO(output.err);
  REQUIRE(output.status == 0);
  CHECK(output.err.empty());
  const nlohmann::json json = nlohmann::json::parse(output.out);
  CHECK(json["failures"] == 0);
  CHECK(json["seed"] == 7);
  CHECK(json["threads"] == 3);
  CHECK(json["seconds"] >= 4);
  CHECK(json["calls"] >= 30);
  CHECK(json["checked"] >= json["calls"].get<int>() / (5 * 16));
  CHECK(json["packed_calls"] > 0);
  int calls = 0;
  for (const char* sharing : {"nothing", "stream", "default-stream", "workspace"}) {
    INFO(sharing);
    CHECK(json["sharing"][sharing]["calls"] > 0);
    CHECK(json["sharing"][sharing]["checked"] > 0);
    CHECK(json["sharing"][sharing]["failures"] == 0);
    calls += json["sharing"][sharing]["calls"].get<int>();
  }
  CHECK(json["sharing"].size() == 4);  // what the emulator has
  CHECK(json["calls"] == calls);
  CHECK(json["kernels"]["compiled"] >= 2);
  const double start = json["memory_at_start"]["device_bytes"], end = json["memory_at_end"]["device_bytes"];
  CHECK(end - start < 50e6);
  CHECK(json["memory_at_end"]["host_bytes"] > 0);
}

TEST_CASE("A soak says what it found, and ends in an error if that is anything", "[soak]") {
  NEEDS_COMMAND();
  const TemporaryDirectory directory;
  const Output good = soak(directory.path(), "--seconds 0.5 --threads 1 --patterns 1 --max-size 16 --seed 1");
  INFO(good.err);
  CHECK(good.status == 0);
  CHECK_THAT(good.out, ContainsSubstring("--seed 1"));
  CHECK_THAT(good.out, ContainsSubstring("0 failed"));
  CHECK_THAT(good.out, ContainsSubstring("sharing   workspace"));

  const Output bad = soak(directory.path(), "--seconds 100 --threads 2 --patterns 1 --max-size 16 --seed 2 --json",
                          "JITGEMM_CXX=/bin/false");
  CHECK(bad.status == 1);
  const nlohmann::json json = nlohmann::json::parse(bad.out);
  CHECK(json["failures"] >= 100);  // then it stops
  CHECK(json["seconds"] < 100);
  CHECK(json["calls"] == 0);
  CHECK_THAT(bad.err, ContainsSubstring("jitgemm: failed: --problem \"m="));
  CHECK_THAT(bad.err, ContainsSubstring("calls failed: run one alone"));
}
