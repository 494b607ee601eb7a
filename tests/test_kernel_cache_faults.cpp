#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <set>
#include <thread>
#include <vector>

#include "cache_samples.hpp"
#include "catch.hpp"
#include "jit/cache_entry.hpp"
#include "util/atomic_file.hpp"
#include "util/hash.hpp"
#include "util/publish_step.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
namespace fs = std::filesystem;

namespace {

/// Appends a letter, so that the file's size counts over all processes.
void count_up(const fs::path& file) {
  const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (write(descriptor, "x", 1) != 1) throw std::runtime_error("count");
  close(descriptor);
}

std::size_t count_in(const fs::path& file) { return file_text(file).size(); }

/// Asks for the entry with a compile that takes a while and is counted in a file.
void ask_slowly(KernelCache& cache, const CacheEntry& entry, const fs::path& counter, int milliseconds = 100) {
  const CacheEntry answer =
      cache.find_or_compile(key_of(entry),
                            [&] {
                              count_up(counter);
                              std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
                              return entry;
                            },
                            {});
  if (!equal(answer, entry)) throw std::runtime_error("a wrong entry");
}

/// Puts `bytes` in the place of an entry: that must count as absent, be reported once, be replaced, and touch no other.
void check_replaced(KernelCache& cache, const fs::path& directory, const CacheEntry& entry, const CacheEntry& other,
                    const std::string& bytes) {
  const fs::path file = file_of(directory, entry);
  write_file(file, bytes);
  REQUIRE(ask(cache, entry));
  REQUIRE_FALSE(ask(cache, entry));
  REQUIRE_FALSE(ask(cache, other));
}

std::vector<std::string>* steps_seen = nullptr;
int steps_until_death = 0;

/// The steps of publishing in this process from now on.
void record_step(const char* step) { steps_seen->push_back(step); }
void die_at_step(const char*) {
  if (steps_until_death-- == 0) kill(getpid(), SIGKILL);
}

}  // namespace

TEST_CASE("16 processes that ask for the same new key compile once", "[cache]") {
  const TemporaryDirectory directory;
  const CacheEntry entry = sample_entry("a", 100000);
  const fs::path counter = directory.path() / "compiles";
  const auto storm = [&] {
    const fs::path start = directory.path() / "start";
    std::vector<pid_t> children;
    for (int i = 0; i < 16; ++i) {
      children.push_back(spawn([&] {
        KernelCache cache = cache_at(directory.path() / "cache");
        while (!fs::exists(start)) std::this_thread::yield();
        ask_slowly(cache, entry, counter, 200);
        return 0;
      }));
    }
    write_file(start, "");
    for (const pid_t child : children) CHECK(wait_for(child) == 0);
    fs::remove(start);
  };
  storm();
  CHECK(count_in(counter) == 1);
  storm();
  CHECK(count_in(counter) == 1);

  // Also where a damaged entry lies: one of them replaces it.
  std::string bytes = file_text(file_of(directory.path() / "cache", entry));
  bytes[5000] ^= 1;
  write_file(file_of(directory.path() / "cache", entry), bytes);
  storm();
  CHECK(count_in(counter) == 2);
}

TEST_CASE("16 threads that ask for the same new key compile once, other keys go on meanwhile", "[cache]") {
  const TemporaryDirectory directory;
  KernelCache cache = cache_at(directory.path() / "cache");
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&, i] {
      try {
        ask_slowly(cache, sample_entry("same"), directory.path() / "same");
        ask_slowly(cache, sample_entry(std::to_string(i)), directory.path() / "different", 0);
      } catch (...) {
        ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(count_in(directory.path() / "same") == 1);
  CHECK(count_in(directory.path() / "different") == 16);
}

TEST_CASE("who waits for a compile that fails or dies compiles, as does who waits too long", "[cache]") {
  const TemporaryDirectory directory;
  const fs::path counter = directory.path() / "compiles", path = directory.path() / "cache";
  const CacheEntry entry = sample_entry("a");
  const auto wait_for_compile = [&] {
    while (count_in(counter) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  SECTION("fails") {
    const pid_t child = spawn([&] {
      KernelCache cache = cache_at(path);
      const auto failing = [&]() -> CacheEntry {
        count_up(counter);
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        throw std::runtime_error("no");
      };
      try {
        cache.find_or_compile(key_of(entry), failing, {});
      } catch (const std::runtime_error&) {
        return 0;
      }
      return 1;
    });
    wait_for_compile();
    KernelCache cache = cache_at(path);
    CHECK(ask(cache, entry));
    CHECK(wait_for(child) == 0);
  }
  SECTION("dies") {
    const pid_t child = spawn([&] {
      KernelCache cache = cache_at(path);
      ask_slowly(cache, entry, counter, 60000);
      return 0;
    });
    wait_for_compile();
    std::thread killer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      kill(child, SIGKILL);
    });
    KernelCache cache = cache_at(path);
    CHECK(ask(cache, entry));
    killer.join();
    CHECK(wait_for(child) == -SIGKILL);
  }
  SECTION("takes too long") {
    const pid_t child = spawn([&] {
      KernelCache cache = cache_at(path);
      ask_slowly(cache, entry, counter, 700);
      return 0;
    });
    wait_for_compile();
    KernelCache cache({.directory = path, .lock_timeout_seconds = 0.1});
    CHECK(ask(cache, entry));
    CHECK(wait_for(child) == 0);
    CHECK_FALSE(ask(cache, entry));
  }
}

TEST_CASE("an entry with any byte flipped is dropped and built again", "[cache]") {
  const TemporaryDirectory directory;
  KernelCache cache = cache_at(directory.path());
  const CapturedLog log;
  const CacheEntry entry = sample_entry("a"), other = sample_entry("other");
  ask(cache, entry), ask(cache, other);
  const std::string good = file_text(file_of(directory.path(), entry));
  const std::string digest = key_of(entry).digest;
  const std::size_t text_begin = good.find(entry.source.text);
  REQUIRE(equal(unpack_entry(good, digest, nullptr).value(), entry));

  // Every bit of every byte on its own, then through the whole path for each byte of head, metadata and checksum, and
  // samples of text and code.
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      if (unpack_entry(bad, digest, nullptr)) FAIL("bit " << bit << " of byte " << at);
    }
  }
  for (std::size_t at = 0; at < good.size(); at += at < text_begin || at >= good.size() - 33 ? 1 : 41) {
    INFO("byte " << at);
    std::string bad = good;
    bad[at] = static_cast<char>(~bad[at]);
    check_replaced(cache, directory.path(), entry, other, bad);
  }
  CHECK(log.count("checksum differs") == 1);  // one warning a cause and file, not one a flip
  CHECK(cache.list(true).size() == 2);
}

TEST_CASE("a truncated or lengthened entry is dropped and built again", "[cache]") {
  const TemporaryDirectory directory;
  KernelCache cache = cache_at(directory.path());
  const CapturedLog log;
  const CacheEntry entry = sample_entry("a"), other = sample_entry("other");
  ask(cache, entry), ask(cache, other);
  const std::string good = file_text(file_of(directory.path(), entry));
  for (std::size_t length = 0; length < good.size(); ++length) {
    std::string why;
    if (unpack_entry(good.substr(0, length), key_of(entry).digest, &why)) FAIL("length " << length);
    if (why != "truncated") FAIL("length " << length << " is called " << why);
  }
  for (std::size_t length = 0; length < good.size(); length += length < 300 ? 7 : 97) {
    INFO("length " << length);
    check_replaced(cache, directory.path(), entry, other, good.substr(0, length));
  }
  check_replaced(cache, directory.path(), entry, other, good.substr(0, good.size() - 1));
  check_replaced(cache, directory.path(), entry, other, good + '\0');
  check_replaced(cache, directory.path(), entry, other, good + good);
  check_replaced(cache, directory.path(), entry, other, std::string(good.size(), '\0'));
}

TEST_CASE("a foreign file in an entry's place does no harm", "[cache]") {
  const TemporaryDirectory directory;
  KernelCache cache = cache_at(directory.path());
  const CapturedLog log;
  const CacheEntry entry = sample_entry("a"), other = sample_entry("other");
  ask(cache, entry), ask(cache, other);
  const fs::path file = file_of(directory.path(), entry);
  const std::string good = file_text(file);
  const auto sealed = [](std::string bytes) {
    bytes.resize(bytes.size() - 32);
    return bytes + digest_of(bytes);
  };

  SECTION("a text") { check_replaced(cache, directory.path(), entry, other, std::string(5000, 'A')); }
  SECTION("another key's entry") {
    check_replaced(cache, directory.path(), entry, other, file_text(file_of(directory.path(), other)));
  }
  SECTION("another schema's entry") {
    std::string bytes = good;
    bytes[8] = 2;
    check_replaced(cache, directory.path(), entry, other, sealed(bytes));
  }
  SECTION("lengths that lie under a right checksum") {
    for (const std::size_t at : {12u, 16u, 24u}) {
      for (const char* lie : {"\xff\xff\xff\xff", "\xff\xff\xff\x7f", "\0\0\0\0", "\1\0\0\0"}) {
        std::string bytes = good;
        bytes.replace(at, 4, lie, 4);
        check_replaced(cache, directory.path(), entry, other, sealed(bytes));
      }
    }
    // Two lengths that overflow into the right sum.
    std::string bytes = good;
    for (const std::size_t at : {16u, 24u}) bytes[at + 7] = static_cast<char>(0x80);
    check_replaced(cache, directory.path(), entry, other, sealed(bytes));
  }
  SECTION("metadata that is no metadata under a right checksum") {
    const std::size_t begin = entry_head_bytes, end = good.find(entry.source.text);
    for (const std::string& text :
         {std::string(end - begin, '['), "{}" + std::string(end - begin - 2, ' '), std::string(end - begin, '\xff'),
          "{\"entry\":5}" + std::string(end - begin - 11, ' ')}) {
      check_replaced(cache, directory.path(), entry, other,
                     sealed(std::string(good).replace(begin, end - begin, text)));
    }
  }
  SECTION("a file of a terabyte") {
    fs::remove(file);
    write_file(file, "");
    std::error_code error;
    fs::resize_file(file, std::uintmax_t(1) << 40, error);
    if (error) WARN("no sparse file of this size here: " << error.message());
    CHECK(ask(cache, entry));
    CHECK_FALSE(ask(cache, entry));
  }
  SECTION("a FIFO, which is not waited for") {
    fs::remove(file);
    REQUIRE(mkfifo(file.c_str(), 0600) == 0);
    CHECK(ask(cache, entry));
    CHECK_FALSE(ask(cache, entry));
  }
  SECTION("a link to nowhere") {
    fs::remove(file);
    fs::create_symlink("nowhere", file);
    CHECK(ask(cache, entry));
    CHECK_FALSE(ask(cache, entry));
  }
  SECTION("a folder, which stays") {
    fs::remove(file);
    fs::create_directories(file / "content");
    for (int i = 0; i < 2; ++i) CHECK(ask(cache, entry));
    CHECK(log.count("cannot store") == 1);
    CHECK(cache.list(true).size() == 1);
    cache.prune(0);
    CHECK(fs::exists(file / "content"));
  }
}

TEST_CASE("without file descriptors left, entries are compiled and not lost", "[cache]") {
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

TEST_CASE("a user without rights neither reads nor breaks on another's cache", "[cache]") {
  if (geteuid() != 0) SKIP("only root can become another user");
  const TemporaryDirectory directory;
  const CacheEntry entry = sample_entry("a");
  {
    KernelCache cache = cache_at(directory.path() / "cache");
    ask(cache, entry);
  }
  fs::permissions(directory.path(), fs::perms::all & ~fs::perms::others_write);
  for (const fs::perms mode : {fs::perms::owner_all, fs::perms(0755)}) {
    fs::permissions(directory.path() / "cache", mode);
    CHECK(wait_for(spawn([&] {
            expect(become_nobody(), "become nobody");
            const CapturedLog log;
            KernelCache cache = cache_at(directory.path() / "cache");
            expect(!cache.directory(), "memory only");
            expect(log.count("owned by another user") == 1, log.text().c_str());
            expect(ask(cache, entry), "it is compiled");
            // As the system layer, which may be anyone's, a closed directory warns, and closed files do.
            KernelCache reader(
                {.directory = directory.path() / "none", .system_directory = directory.path() / "cache"});
            expect(ask(reader, entry), "it is compiled");
            expect(log.count("Permission denied") >= 1, log.text().c_str());
            return 0;
          })) == 0);
  }
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

TEST_CASE("many processes that publish at once hold the bound", "[cache]") {
  const TemporaryDirectory directory;
  constexpr std::uintmax_t bound = 100000;
  constexpr int processes = 8, entries = 25;
  std::vector<pid_t> children;
  for (int process = 0; process < processes; ++process) {
    children.push_back(spawn([&, process] {
      KernelCache cache = cache_at(directory.path(), bound);
      for (int i = 0; i < entries; ++i) {
        ask(cache, sample_entry(std::to_string(process) + " " + std::to_string(i), 2000 + 700 * process));
        ask(cache, sample_entry("shared " + std::to_string(i), 5000));
      }
      return 0;
    }));
  }
  std::uintmax_t most = 0;
  for (int i = 0; i < 100; ++i) {
    most = std::max(most, bytes_in(directory.path()));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  CHECK(bytes_in(directory.path()) <= bound);
  CHECK(bytes_in(directory.path()) > bound / 2);
  CHECK(most <= bound + processes * 9000);  // what is published and not yet counted
  KernelCache cache = cache_at(directory.path(), bound);
  for (const auto& info : cache.list(true)) CHECK(info.state == "ok");
}

TEST_CASE("the sum that is kept of the entries' bytes never falls short of them", "[cache]") {
  const TemporaryDirectory directory;
  std::vector<pid_t> children;
  for (int process = 0; process < 8; ++process) {
    children.push_back(spawn([&, process] {
      KernelCache cache = cache_at(directory.path());
      publish_hook = [](const char* step) {  // widens the gap in which a lock must keep others out
        if (std::string(step) == "sum") std::this_thread::sleep_for(std::chrono::milliseconds(2));
      };
      for (int i = 0; i < 25; ++i) ask(cache, sample_entry(std::to_string(process) + " " + std::to_string(i)));
      return 0;
    }));
  }
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  CHECK(std::stoull(file_text(directory.path() / "bytes")) >= bytes_in(directory.path()));
  CHECK(cache_at(directory.path()).list(true).size() == 200);
}

TEST_CASE("processes that publish, find, drop, prune and clear at once always get right answers", "[cache]") {
  const TemporaryDirectory directory;
  std::vector<pid_t> children;
  for (int process = 0; process < 6; ++process) {
    children.push_back(spawn([&, process] {
      const CapturedLog log;
      KernelCache cache = cache_at(directory.path(), 40000);
      for (int i = 0; i < 60; ++i) {
        const CacheEntry entry = sample_entry(std::to_string((i * 7 + process) % 12), 4000);
        ask(cache, entry);
        if (i % 10 == process) cache.drop(key_of(entry), "for the test");
        if (i % 20 == process) cache.prune(20000);
        if (i == 30 && process == 0) cache.clear();
        std::error_code ignored;  // others put files there meanwhile
        if (i == 45 && process == 1) fs::remove_all(directory.path() / "locks", ignored);
      }
      return 0;
    }));
  }
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  KernelCache cache = cache_at(directory.path(), 40000);
  ask(cache, sample_entry("last"));
  CHECK(bytes_in(directory.path()) <= 40000);
  for (const auto& info : cache.list(true)) CHECK(info.state == "ok");
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
