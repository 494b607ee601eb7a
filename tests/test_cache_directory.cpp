// Which directories the kernel cache uses, its own and the system's, and what options and environment say of them.
#include <sys/stat.h>

#include "cache_samples.hpp"
#include "catch.hpp"
#include "errors.hpp"
#include "jit/cache_directory.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

std::string option_error() {
  return refusal(ErrorCode::invalid_option, [] { const KernelCache cache; });
}

KernelCache with_system_layer(const fs::path& directory, const fs::path& system) {
  return KernelCache({.directory = directory, .system_directory = system});
}

unsigned mode_of(const fs::path& path) {
  struct stat status{};
  REQUIRE(stat(path.c_str(), &status) == 0);
  return status.st_mode & 0777;
}

}  // namespace

TEST_CASE("the cache directory is created for its owner only", "[cache]") {
  const TemporaryDirectory directory;
  const mode_t old = umask(0);
  const fs::path path = directory.path() / "deep" / "cache";
  KernelCache cache = cache_at(path);
  ask(cache, sample_entry("a"));
  umask(old);
  CHECK(cache.directory() == path);
  CHECK(mode_of(path) == 0700);
  CHECK(mode_of(directory.path() / "deep") == 0700);
  CHECK(mode_of(file_of(path, sample_entry("a"))) == 0600);
}

TEST_CASE("a directory that others can write to is not used", "[cache]") {
  const TemporaryDirectory directory;
  const CacheEntry entry = sample_entry("a");
  const fs::path path = directory.path() / "cache";
  {
    KernelCache cache = cache_at(path);
    ask(cache, entry);
  }
  const CapturedLog log;
  SECTION("writable by everyone") {
    fs::permissions(path, fs::perms::all);
    for (int i = 0; i < 2; ++i) {
      KernelCache cache = cache_at(path);
      CHECK_FALSE(cache.directory());
      CHECK_FALSE(cache.find(key_of(entry), {}));
      CHECK(ask(cache, entry));
      CHECK(cache.list(true).empty());
      CHECK(cache.prune(0) + cache.clear() == 0);
    }
    CHECK(log.count("writable by everyone") == 1);
    CHECK(log.count("warning") == 1);
    KernelCache reader = with_system_layer(directory.path() / "other", path);
    CHECK_FALSE(reader.find(key_of(entry), {}));
  }
  SECTION("owned by another user") {
    if (geteuid() != 0) SKIP("only root can give a directory away");
    REQUIRE(chown(path.c_str(), 65534, 65534) == 0);
    KernelCache cache = cache_at(path);
    CHECK_FALSE(cache.directory());
    CHECK(log.count("owned by another user") == 1);
  }
  SECTION("reached through another user's link") {
    if (geteuid() != 0) SKIP("only root can give a link away");
    fs::create_directory_symlink(path, directory.path() / "link");
    REQUIRE(lchown((directory.path() / "link").c_str(), 65534, 65534) == 0);
    for (const char* name : {"link", "link/"}) CHECK_FALSE(cache_at(directory.path() / name).directory());
  }
  SECTION("but through a link of our own it is") {
    fs::create_directory_symlink(path, directory.path() / "link");
    KernelCache cache = cache_at(directory.path() / "link");
    CHECK_FALSE(ask(cache, entry));
    CHECK(log.text().empty());
  }
}

TEST_CASE("the environment names the cache directory", "[cache]") {
  const TemporaryDirectory directory;
  const std::string base = directory.path().string();
  const ScopedEnvironment home("HOME", (base + "/home").c_str());
  const ScopedEnvironment none("JITGEMM_CACHE_DIR", nullptr), system("JITGEMM_SYSTEM_CACHE_DIR", nullptr);
  {
    const ScopedEnvironment xdg("XDG_CACHE_HOME", nullptr);
    CHECK(default_cache_directory() == base + "/home/.cache/jitgemm");
  }
  {
    const ScopedEnvironment xdg("XDG_CACHE_HOME", "relative");
    CHECK(default_cache_directory() == base + "/home/.cache/jitgemm");
  }
  const ScopedEnvironment xdg("XDG_CACHE_HOME", (base + "/xdg").c_str());
  CHECK(default_cache_directory() == base + "/xdg/jitgemm");
  const ScopedEnvironment own("JITGEMM_CACHE_DIR", (base + "/own").c_str());
  CHECK(default_cache_directory() == base + "/own");
  CHECK(KernelCache().directory() == base + "/own");
  CHECK(fs::exists(base + "/own"));
}

TEST_CASE("a directory that cannot be used is answered with the setting that named it", "[cache]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path().string();
  const ScopedEnvironment system("JITGEMM_SYSTEM_CACHE_DIR", nullptr), xdg("XDG_CACHE_HOME", nullptr);
  for (const char* name : {"/given", "/own"}) {
    fs::create_directory(path + name);
    fs::permissions(path + name, fs::perms::all);
  }
  const auto warning_of = [](const KernelCacheOptions& options) {
    const CapturedLog log;
    CHECK_FALSE(KernelCache(options).directory());
    return log.text();
  };
  {
    const ScopedEnvironment own("JITGEMM_CACHE_DIR", (path + "/own").c_str());
    CHECK_THAT(warning_of({.directory = path + "/given"}),
               ContainsSubstring("set cache_dir (--cache-dir) to") && !ContainsSubstring("JITGEMM_CACHE_DIR"));
    CHECK_THAT(warning_of({}), ContainsSubstring("kernel cache " + path + "/own is not used") &&
                                   ContainsSubstring("set JITGEMM_CACHE_DIR to"));
  }
  const ScopedEnvironment own("JITGEMM_CACHE_DIR", nullptr), home("HOME", "some/where");
  CHECK_THAT(warning_of({}), ContainsSubstring("no kernel cache is used") &&
                                 ContainsSubstring("HOME=some/where is not an absolute path; set JITGEMM_CACHE_DIR"));
}

TEST_CASE("nonsense in options and environment is an error that names the way out", "[cache]") {
  const TemporaryDirectory directory;
  const ScopedEnvironment own("JITGEMM_CACHE_DIR", directory.path().c_str());
  CHECK(option_error().empty());
  {
    const ScopedEnvironment bad("JITGEMM_CACHE_DIR", "some/where");
    CHECK_THAT(option_error(), ContainsSubstring("JITGEMM_CACHE_DIR=some/where is not an absolute path"));
  }
  {
    const ScopedEnvironment bad("JITGEMM_SYSTEM_CACHE_DIR", "some/where");
    CHECK_THAT(option_error(), ContainsSubstring("JITGEMM_SYSTEM_CACHE_DIR=some/where is not an absolute path"));
  }
  {
    const ScopedEnvironment bad("JITGEMM_CACHE_COMPILER", "same");
    CHECK_THAT(option_error(), ContainsSubstring("JITGEMM_CACHE_COMPILER=same") && ContainsSubstring("any or exact"));
  }
  for (const char* text :
       {"0", "-1", "1.5G", "many", "12T", "12Mx", " 5", "99999999999999999999", "99999999999999999G"}) {
    const ScopedEnvironment bad("JITGEMM_CACHE_MAX_BYTES", text);
    CHECK_THAT(option_error(), ContainsSubstring("JITGEMM_CACHE_MAX_BYTES=" + std::string(text) + " is not a size"));
  }
  CHECK_THROWS_AS(cache_at(""), Error);
}

TEST_CASE("the bound comes from the option, then the environment, then the default", "[cache]") {
  const TemporaryDirectory directory;
  {
    const ScopedEnvironment none("JITGEMM_CACHE_MAX_BYTES", nullptr);
    CHECK(cache_at(directory.path()).max_bytes() == 1u << 30);
  }
  {
    const ScopedEnvironment plain("JITGEMM_CACHE_MAX_BYTES", "5000");
    CHECK(cache_at(directory.path()).max_bytes() == 5000);
    CHECK(cache_at(directory.path(), 7000).max_bytes() == 7000);
  }
  const ScopedEnvironment suffix("JITGEMM_CACHE_MAX_BYTES", "3M");
  CHECK(cache_at(directory.path()).max_bytes() == 3u << 20);
}

TEST_CASE("the system layer is read and never written", "[cache]") {
  const TemporaryDirectory directory;
  const fs::path system = directory.path() / "system", own = directory.path() / "own";
  const CacheEntry shipped = sample_entry("shipped"), fresh = sample_entry("fresh");
  {
    KernelCache builder = cache_at(system);
    ask(builder, shipped);
  }
  fs::permissions(system, fs::perms::owner_read | fs::perms::owner_exec);
  make_older(file_of(system, shipped), 1000);
  const auto used = fs::last_write_time(file_of(system, shipped));

  KernelCache cache = with_system_layer(own, system);
  CHECK_FALSE(ask(cache, shipped));
  CHECK(ask(cache, fresh));
  CHECK(fs::exists(file_of(own, fresh)));
  CHECK_FALSE(fs::exists(file_of(own, shipped)));
  CHECK_FALSE(fs::exists(file_of(system, fresh)));
  CHECK(fs::last_write_time(file_of(system, shipped)) == used);

  const auto infos = cache.list(true);
  REQUIRE(infos.size() == 2);
  CHECK((!infos[0].read_only && infos[0].path == file_of(own, fresh)));
  CHECK((infos[1].read_only && infos[1].path == file_of(system, shipped)));

  const CapturedLog log;
  cache.drop(key_of(shipped), "the driver says no");
  CHECK(log.count("the driver says no") == 1);
  CHECK(ask(cache, shipped));
  CHECK_FALSE(ask(cache, shipped));
  CHECK(fs::exists(file_of(own, shipped)));
  CHECK(fs::exists(file_of(system, shipped)));
  cache.clear();
  CHECK(fs::exists(file_of(system, shipped)));
}

TEST_CASE("without any place to write, the system layer still serves", "[cache]") {
  const TemporaryDirectory directory;
  const CacheEntry shipped = sample_entry("shipped");
  {
    KernelCache builder = cache_at(directory.path() / "system");
    ask(builder, shipped);
  }
  write_file(directory.path() / "file", "");
  const CapturedLog log;
  KernelCache cache = with_system_layer(directory.path() / "file" / "cache", directory.path() / "system");
  CHECK_FALSE(cache.directory());
  CHECK_FALSE(ask(cache, shipped));
  CHECK(ask(cache, sample_entry("fresh")));
  CHECK(log.count("warning") == 1);

  const KernelCache without = with_system_layer(directory.path() / "own", directory.path() / "missing");
  CHECK(log.count("system kernel cache") == 1);
  CHECK(log.count("warning") == 2);
}
