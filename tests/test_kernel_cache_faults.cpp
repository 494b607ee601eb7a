// The kernel cache where a directory, a disk or a process fails it.
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <vector>

#include "cache_samples.hpp"
#include "catch.hpp"
#include "jitgemm/error.hpp"
#include "sanitizers.hpp"
#include "util/atomic_file.hpp"
#include "util/publish_step.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
namespace fs = std::filesystem;

namespace {

std::vector<std::string>* steps_seen = nullptr;
int steps_until_death = 0;

/// The steps of publishing in this process from now on.
void record_step(const char* step) { steps_seen->push_back(step); }
void die_at_step(const char*) {
  if (steps_until_death-- == 0) kill(getpid(), SIGKILL);
}

}  // namespace

TEST_CASE("without file descriptors left, entries are compiled and not lost", "[cache]") {
  if (ubsan) SKIP(ubsan_opens_pipes);
  const TemporaryDirectory directory;
  const CacheEntry entry = sample_entry("a");
  CHECK(wait_for(spawn([&] {
          const CapturedLog log;
          KernelCache cache = cache_at(directory.path());
          ask(cache, entry);
          rlimit limit{};
          getrlimit(RLIMIT_NOFILE, &limit);
          const rlimit none{0, limit.rlim_max};
          setrlimit(RLIMIT_NOFILE, &none);
          expect(ask(cache, entry), "it is compiled");
          setrlimit(RLIMIT_NOFILE, &limit);
          expect(!ask(cache, entry), "it is still there");
          expect(log.count("Too many open files; the kernel is compiled, close some files") == 1, "it says what to do");
          return 0;
        })) == 0);
}

TEST_CASE("without file descriptors left, no cache is opened that would do without its directory for good", "[cache]") {
  if (ubsan) SKIP(ubsan_opens_pipes);
  const TemporaryDirectory directory;
  CHECK(wait_for(spawn([&] {
          rlimit limit{};
          getrlimit(RLIMIT_NOFILE, &limit);
          const rlimit none{0, limit.rlim_max};
          setrlimit(RLIMIT_NOFILE, &none);
          std::string message;
          try {
            cache_at(directory.path());
          } catch (const Error& error) {
            if (error.code() == ErrorCode::io) message = error.what();
          }
          setrlimit(RLIMIT_NOFILE, &limit);
          expect(message.find("Too many open files; close some files, or raise the limit") != std::string::npos,
                 message.c_str());
          expect(cache_at(directory.path()).directory().has_value(), "it can be had later");
          return 0;
        })) == 0);
}

TEST_CASE("a cache directory that cannot be had means memory only, with one warning", "[cache]") {
  const TemporaryDirectory directory;
  const CapturedLog log;
  const CacheEntry entry = sample_entry("a");
  write_file(directory.path() / "file", "");
  fs::create_symlink("nowhere", directory.path() / "link");
  for (const fs::path& path : {directory.path() / "file", directory.path() / "file" / "cache",
                               directory.path() / "link", fs::path("/proc/jitgemm/cache")}) {
    INFO(path);
    const int warnings = log.count("warning");
    for (int i = 0; i < 2; ++i) {
      KernelCache cache = cache_at(path);
      CHECK_FALSE(cache.directory());
      CHECK(ask(cache, entry));
    }
    CHECK(log.count("warning") == warnings + 1);
    CHECK(log.count(path.string()) >= 1);
  }
}

TEST_CASE("a cache that has become read-only still serves, and warns once that it stores nothing", "[cache]") {
  const TemporaryDirectory directory;
  const CacheEntry old = sample_entry("old");
  const auto check = [&](KernelCache& cache, const CapturedLog& log) {
    expect(!ask(cache, old), "the old entry is found");
    for (int i = 0; i < 3; ++i) expect(ask(cache, sample_entry("new " + std::to_string(i))), "a new one is compiled");
    expect(log.count("cannot store") == 1, "there is one warning");
    cache.drop(key_of(old), "the driver says no");
    expect(ask(cache, old), "a refused entry is compiled although it cannot be removed");
    expect(cache.prune(0) + cache.clear() == 0, "nothing can be removed");
    expect(cache.list(true).size() == 1, "the old entry is still there");
  };

  SECTION("a file system mounted read-only") {
    const int status = wait_for(spawn([&] {
      mount_tmpfs(directory.path(), 1 << 20);
      {
        KernelCache cache = cache_at(directory.path());
        ask(cache, old);
      }
      remount_read_only(directory.path());
      const CapturedLog log;
      KernelCache cache = cache_at(directory.path());
      expect(cache.directory() == directory.path(), "the directory is used");
      check(cache, log);
      KernelCache below = cache_at(directory.path() / "below");
      expect(!below.directory() && ask(below, old), "one that cannot be created there means memory only");
      return 0;
    }));
    if (status == not_allowed) SKIP("mounts are not allowed here");
    CHECK(status == 0);
  }
  SECTION("a directory without write permission, for a user without rights") {
    fs::permissions(directory.path(), fs::perms::all);
    CHECK(wait_for(spawn([&] {
            if (geteuid() == 0 && !become_nobody()) return 1;
            const fs::path path = directory.path() / "cache";
            {
              KernelCache cache = cache_at(path);
              ask(cache, old);
            }
            fs::permissions(path, fs::perms::owner_read | fs::perms::owner_exec);
            fs::permissions(path / "locks", fs::perms::owner_read | fs::perms::owner_exec);
            const CapturedLog log;
            KernelCache cache = cache_at(path);
            check(cache, log);
            fs::permissions(path, fs::perms::owner_all);
            expect(ask(cache, old) && !ask(cache, old), "once it can be written, the refused entry is replaced");
            return 0;
          })) == 0);
  }
}

TEST_CASE("a user without rights reads root's cache where that is open, and nobody else's", "[cache][security]") {
  if (geteuid() != 0) SKIP("only root can become another user");
  const TemporaryDirectory directory, own;
  const CacheEntry entry = sample_entry("a");
  {
    KernelCache cache = cache_at(directory.path() / "cache");
    ask(cache, entry);
  }
  fs::permissions(directory.path(), fs::perms::all & ~fs::perms::others_write);
  fs::permissions(own.path(), fs::perms::all);
  const fs::path path = directory.path() / "cache";
  const auto check = [&](const auto& body) {
    CHECK(wait_for(spawn([&] {
            expect(become_nobody(), "become nobody");
            const CapturedLog log;
            KernelCache cache = cache_at(path);
            KernelCache reader({.directory = own.path() / "cache", .system_directory = path});
            body(cache, reader, log);
            fs::remove_all(own.path() / "cache");
            return 0;
          })) == 0);
  };
  const auto refused = [&](const char* why) {
    return [&, why](KernelCache& cache, KernelCache& reader, const CapturedLog& log) {
      expect(!cache.directory(), "memory only");
      expect(ask(cache, entry) && ask(reader, entry), "it is compiled");
      expect(log.count(why) == 2, log.text().c_str());
    };
  };
  fs::permissions(path, fs::perms::owner_all);
  check(refused("Permission denied"));
  fs::permissions(path, fs::perms(0755));
  check([&](KernelCache& cache, KernelCache& reader, const CapturedLog& log) {
    expect(ask(cache, entry) && ask(reader, entry), "its files are closed: it is compiled");
    expect(log.count("cannot be read: Permission denied") == 1, log.text().c_str());
  });
  fs::permissions(file_of(path, entry), fs::perms(0644));
  check([&](KernelCache& cache, KernelCache& reader, const CapturedLog& log) {
    expect(!ask(cache, entry) && !ask(reader, entry), "root's kernel serves everyone");
    expect(ask(cache, sample_entry("new")), "a new one is compiled");
    expect(log.count("cannot store a kernel") == 1, log.text().c_str());
  });
  REQUIRE(chown(path.c_str(), 1, 1) == 0);
  check(refused("owned by another user"));
}

TEST_CASE("a full disk costs nothing but the warning", "[cache]") {
  const TemporaryDirectory directory;
  const CacheEntry small = sample_entry("small"), large = sample_entry("large", 100000);
  const auto check = [&](const fs::path& path) {
    const CapturedLog log;
    KernelCache cache = cache_at(path);
    expect(ask(cache, small), "the small entry is new");
    for (int i = 0; i < 3; ++i) expect(ask(cache, large), "the large entry is compiled each time");
    expect(log.count("cannot store") == 1, log.text().c_str());
    expect(!ask(cache, small), "the small entry is still there");
    for (const auto& item : fs::directory_iterator(path)) {
      expect(!is_temporary_name(item.path().filename().string()), "no temporary is left");
    }
    expect(cache.list(true).size() == 1 && cache.list(true)[0].state == "ok", "one good entry is left");
    return 0;
  };
  SECTION("of a small file system") {
    const int status = wait_for(spawn([&] {
      mount_tmpfs(directory.path(), 64 << 10);
      check(directory.path());
      // Not a byte left: neither the locks nor the sum of bytes can be kept.
      {
        std::ofstream filler(directory.path() / "filler");
        while (filler << 'x' << std::flush) {
        }
      }
      const CapturedLog log;
      KernelCache cache = cache_at(directory.path());
      expect(!ask(cache, small), "the small entry is found on a full disk");
      for (int i = 0; i < 3; ++i) expect(ask(cache, sample_entry("new")), "a new entry is compiled each time");
      fs::remove(directory.path() / "filler");
      expect(ask(cache, sample_entry("new")), "a new entry is compiled");
      expect(!ask(cache, sample_entry("new")), "and stored once there is room");
      return 0;
    }));
    if (status == not_allowed) SKIP("mounts are not allowed here");
    CHECK(status == 0);
  }
  SECTION("by a limit on file sizes, which is not to raise SIGXFSZ") {
    for (const auto disposition : {SIG_DFL, SIG_IGN}) {
      const fs::path path = directory.path() / (disposition == SIG_DFL ? "default" : "ignored");
      CHECK(wait_for(spawn([&] {
              signal(SIGXFSZ, disposition);
              const rlimit limit{20000, 20000};
              setrlimit(RLIMIT_FSIZE, &limit);
              return check(path);
            })) == 0);
    }
  }
}

TEST_CASE("a process killed at any step of publishing loses nothing", "[cache]") {
  const CacheEntry old = sample_entry("old"), entry = sample_entry("a", 200000), next = sample_entry("next", 200000);
  // The bound is such that `entry` drives out `older`.
  const CacheEntry older = sample_entry("older", 100000);
  const auto prepare = [&](const fs::path& path) {
    KernelCache cache = cache_at(path);
    ask(cache, old), ask(cache, older);
    make_older(file_of(path, older), 1000);
  };
  constexpr std::uintmax_t bound = 250000;

  std::vector<std::string> steps;
  {
    const TemporaryDirectory directory;
    prepare(directory.path());
    steps_seen = &steps;
    publish_hook = record_step;
    KernelCache cache = cache_at(directory.path(), bound);
    ask(cache, entry);
    publish_hook = nullptr;
  }
  const std::set<std::string> kinds(steps.begin(), steps.end());
  REQUIRE(kinds == std::set<std::string>{"compile", "create", "write", "sync", "rename", "sync directory", "published",
                                         "count", "evict", "sum"});
  REQUIRE(steps.size() >= 12);  // some of them in the middle of the file

  for (std::size_t step = 0; step < steps.size(); ++step) {
    INFO("killed before step " << step << ", " << steps[step]);
    const TemporaryDirectory directory;
    prepare(directory.path());
    const pid_t child = spawn([&] {
      steps_until_death = static_cast<int>(step);
      publish_hook = die_at_step;
      KernelCache cache = cache_at(directory.path(), bound);
      ask(cache, entry);
      return 0;
    });
    REQUIRE(wait_for(child) == -SIGKILL);

    const CapturedLog log;
    KernelCache cache = cache_at(directory.path(), bound);
    for (const auto& info : cache.list(true)) CHECK(info.state == "ok");
    CHECK_FALSE(ask(cache, old));
    const bool was_published = fs::exists(file_of(directory.path(), entry));
    const bool renamed =
        step > static_cast<std::size_t>(std::find(steps.begin(), steps.end(), "rename") - steps.begin());
    CHECK(was_published == renamed);
    const auto begin = std::chrono::steady_clock::now();
    CHECK(ask(cache, entry) == !was_published);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));  // the lock died with its holder
    CHECK_FALSE(ask(cache, entry));
    make_older(file_of(directory.path(), entry), 500);
    make_older(file_of(directory.path(), old), 10);
    CHECK(ask(cache, next));
    CHECK(bytes_in(directory.path()) <= bound);
    CHECK_FALSE(ask(cache, old));
    CHECK(log.text().empty());

    for (const auto& item : fs::directory_iterator(directory.path())) {
      if (is_temporary_name(item.path().filename().string())) make_older(item.path(), 3700);
    }
    cache.prune(bound);
    for (const auto& item : fs::directory_iterator(directory.path())) {
      CHECK_FALSE(is_temporary_name(item.path().filename().string()));
    }
  }
}

TEST_CASE("a cache directory removed under a running process is made again", "[cache]") {
  const TemporaryDirectory directory;
  const CapturedLog log;
  KernelCache cache = cache_at(directory.path() / "cache");
  const CacheEntry entry = sample_entry("a");
  ask(cache, entry);
  fs::remove_all(directory.path() / "cache");
  CHECK(ask(cache, entry));
  CHECK_FALSE(ask(cache, entry));
  CHECK(log.text().empty());
}
