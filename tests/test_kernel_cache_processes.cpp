// One kernel cache, many processes and threads.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include "cache_samples.hpp"
#include "catch.hpp"
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
