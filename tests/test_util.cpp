#include <sys/file.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "sandbox.hpp"
#include "util/atomic_file.hpp"
#include "util/environment.hpp"
#include "util/hash.hpp"
#include "util/log.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
namespace fs = std::filesystem;

namespace {

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& item : fs::directory_iterator(directory)) names.insert(item.path().filename().string());
  return names;
}

/// What this binary writes to stderr when it runs the test case `name`.
std::string stderr_of_test(const char* name) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = spawn([&] {
    dup2(ends[1], STDERR_FILENO);
    dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execl("/proc/self/exe", "tests", name, static_cast<char*>(nullptr));
    return 1;
  });
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, std::size_t(count));
  close(ends[0]);
  REQUIRE(wait_for(child) == 0);
  return text;
}

}  // namespace

TEST_CASE("A default stands for a variable that is not set, and changes no environment", "[util]") {
  constexpr const char* name = "JITGEMM_TEST_DEFAULT";
  const ScopedEnvironment unset(name, nullptr);
  CHECK_FALSE(environment(name));
  set_environment_default(name, "first");
  set_environment_default(name, "second");
  CHECK(environment(name) == "second");
  CHECK(std::getenv(name) == nullptr);
  {
    const ScopedEnvironment set(name, "own");
    CHECK(environment(name) == "own");
  }
  const ScopedEnvironment empty(name, "");
  CHECK(environment(name) == "second");
}

TEST_CASE("a digest is the published XXH3-128", "[util]") {
  CHECK(digest_of("") == "99aa06d3014798d86001c324468d497f");
  CHECK(digest_of(std::string("a\0b", 3)) != digest_of("a"));
  CHECK(digest_of("jitgemm").size() == 32);
}

TEST_CASE("the six log levels parse and nothing else does", "[util]") {
  CHECK(parse_log_level("trace") == spdlog::level::trace);
  CHECK(parse_log_level("debug") == spdlog::level::debug);
  CHECK(parse_log_level("info") == spdlog::level::info);
  CHECK(parse_log_level("warn") == spdlog::level::warn);
  CHECK(parse_log_level("error") == spdlog::level::err);
  CHECK(parse_log_level("off") == spdlog::level::off);
  for (const char* text : {"", "WARN", "loud", "warn ", "0"}) CHECK_FALSE(parse_log_level(text));
}

TEST_CASE("log probe", "[.log_probe]") {
  logger().info("an info line");
  warn_once("key", "a warning with {} in it");
  warn_once("key", "the same again");
  warn_once("other key", "another warning");
  logger().error("an error line");
  CHECK(true);
}

TEST_CASE("the logger writes to stderr at the level of JITGEMM_LOG", "[util]") {
  const auto log_at = [](const char* level) {
    const ScopedEnvironment environment("JITGEMM_LOG", level);
    return stderr_of_test("log probe");
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  for (const char* level : {static_cast<const char*>(nullptr), "", "warn"}) {
    const std::string text = log_at(level);
    CHECK(has(text, "jitgemm warning: a warning with {} in it\n"));
    CHECK(has(text, "another warning"));
    CHECK_FALSE(has(text, "the same again"));
    CHECK_FALSE(has(text, "an info line"));
    CHECK_FALSE(has(text, "JITGEMM_LOG"));
  }
  CHECK(has(log_at("info"), "an info line"));
  CHECK_FALSE(has(log_at("error"), "a warning"));
  CHECK(has(log_at("error"), "an error line"));
  CHECK(log_at("off").empty());

  const std::string nonsense = log_at("loud");
  const std::string complaint = "JITGEMM_LOG=loud is not a level; set it to trace, debug, info, warn, error or off";
  REQUIRE(has(nonsense, complaint.c_str()));
  CHECK(nonsense.find(complaint) == nonsense.rfind(complaint));
  CHECK(has(nonsense, "a warning"));
  CHECK_FALSE(has(nonsense, "an info line"));
}

TEST_CASE("write_atomically writes, replaces, and leaves nothing else behind", "[util]") {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "file";
  std::string why;
  REQUIRE(write_atomically(path, std::string("a\0b", 3), &why));
  CHECK(read_file(path) == std::string("a\0b", 3));
  const std::string large(300000, 'x');
  REQUIRE(write_atomically(path, large, &why));
  CHECK(read_file(path) == large);
  REQUIRE(write_atomically(path, "", nullptr));
  CHECK(read_file(path) == "");
  CHECK(names_in(directory.path()) == std::set<std::string>{"file"});
}

TEST_CASE("write_atomically that fails says why and keeps the older file", "[util]") {
  const TemporaryDirectory directory;
  std::string why;
  CHECK_FALSE(write_atomically(directory.path() / "missing" / "file", "x", &why));
  CHECK(why == "No such file or directory");

  fs::create_directories(directory.path() / "folder" / "content");
  CHECK_FALSE(write_atomically(directory.path() / "folder", "x", &why));
  CHECK(names_in(directory.path()) == std::set<std::string>{"folder"});

  const fs::path path = directory.path() / "file";
  REQUIRE(write_atomically(path, "old", &why));
  // SIGXFSZ keeps its default, which ends the process: the limit must be seen before it is hit.
  CHECK(wait_for(spawn([&] {
          const rlimit limit{1000, 1000};
          setrlimit(RLIMIT_FSIZE, &limit);
          std::string text;
          expect(!write_atomically(path, std::string(2000, 'x'), &text), "the write fails");
          expect(text == "File too large", text.c_str());
          expect(write_atomically(directory.path() / "small", "x", &text), "a small file still fits");
          return 0;
        })) == 0);
  CHECK(read_file(path) == "old");
  CHECK(names_in(directory.path()) == std::set<std::string>{"file", "folder", "small"});
}

TEST_CASE("readers see whole files while processes replace them", "[util]") {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "file";
  std::vector<pid_t> writers;
  REQUIRE(write_atomically(path, std::string(100000, 'z'), nullptr));
  for (char letter = 'a'; letter < 'e'; ++letter) {
    writers.push_back(spawn([&, letter] {
      for (int i = 0; i < 20; ++i) {
        expect(write_atomically(path, std::string(100000 + letter, letter), nullptr), "the write succeeds");
      }
      return 0;
    }));
  }
  for (int i = 0; i < 300; ++i) {
    const auto text = read_file(path);
    REQUIRE(text);
    REQUIRE(text->find_first_not_of((*text)[0]) == std::string::npos);
    REQUIRE(text->size() == ((*text)[0] == 'z' ? 100000u : 100000u + (*text)[0]));
  }
  for (const pid_t writer : writers) CHECK(wait_for(writer) == 0);
  CHECK(names_in(directory.path()) == std::set<std::string>{"file"});
}

TEST_CASE("names of temporaries are told from others", "[util]") {
  CHECK(is_temporary_name("file.tmp-aB3xYz"));
  for (const char* name : {"", "file", ".tmp-aB3xYz", "file.tmp-", "file.tmp-aB3xY", "file.tmp-aB3xYz.kernel"}) {
    INFO(name);
    CHECK_FALSE(is_temporary_name(name));
  }
}

TEST_CASE("read_file takes regular files of bounded size only", "[util]") {
  const TemporaryDirectory directory;
  write_file(directory.path() / "file", "12345");
  CHECK(read_file(directory.path() / "file", 5) == "12345");
  CHECK_FALSE(read_file(directory.path() / "file", 4));
  CHECK(errno == EFBIG);
  CHECK_FALSE(read_file(directory.path() / "missing"));
  CHECK(errno == ENOENT);
  CHECK_FALSE(read_file(directory.path()));
  CHECK(errno == EISDIR);
  REQUIRE(mkfifo((directory.path() / "fifo").c_str(), 0600) == 0);
  CHECK_FALSE(read_file(directory.path() / "fifo"));
  CHECK_FALSE(read_file("/dev/zero"));
  CHECK(read_trusted_head(directory.path() / "file", nullptr, 2) == "12");
  CHECK(read_trusted_head(directory.path() / "file", nullptr, 100) == "12345");
}

TEST_CASE("a file lock excludes others until it is released", "[util]") {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "lock";
  {
    const FileLock first(path, 0);
    REQUIRE(first.held());
    CHECK_FALSE(FileLock(path, 0).held());
    const auto begin = std::chrono::steady_clock::now();
    CHECK_FALSE(FileLock(path, 0.1).held());
    CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(100));
    CHECK(wait_for(spawn([&] { return FileLock(path, 0.05).held() ? 1 : 0; })) == 0);
  }
  CHECK(FileLock(path, 0).held());

  std::atomic<int> inside = 0, most = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        const FileLock lock(path, 60);
        const int now = ++inside;
        if (now > most) most = now;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(most == 1);
}

TEST_CASE("a file lock dies with its process, and with its holder although a child lives", "[util]") {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "lock";
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t holder = spawn([&] {
    const FileLock lock(path, 0);
    expect(lock.held() && write(ends[1], "x", 1) == 1, "the lock is held");
    pause();
    return 0;
  });
  char byte = 0;
  REQUIRE(read(ends[0], &byte, 1) == 1);
  CHECK_FALSE(FileLock(path, 0).held());
  kill(holder, SIGKILL);
  CHECK(wait_for(holder) == -SIGKILL);
  CHECK(FileLock(path, 0).held());

  pid_t heir = 0;
  {
    const FileLock lock(path, 0);
    heir = spawn([] { return pause(); });
  }
  CHECK(FileLock(path, 0).held());
  kill(heir, SIGKILL);
  wait_for(heir);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("a lock that cannot be had at all is empty at once", "[util]") {
  const TemporaryDirectory directory;
  const auto begin = std::chrono::steady_clock::now();
  CHECK_FALSE(FileLock(directory.path() / "missing" / "lock", 60).held());
  CHECK_FALSE(FileLock(directory.path(), 60).held());
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}

TEST_CASE("who waits for a lock whose file is removed gets one on the new file", "[util]") {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "lock";
  const int old = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  REQUIRE(flock(old, LOCK_EX) == 0);
  std::thread waiter([&] {
    const FileLock lock(path, 60);
    if (!lock.held() || FileLock(path, 0).held()) write_file(directory.path() / "wrong", "");
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  fs::remove(path);
  close(old);
  waiter.join();
  CHECK(names_in(directory.path()) == std::set<std::string>{"lock"});
}
