#include <sys/file.h>
#include <sys/resource.h>

#include <chrono>
#include <thread>

#include "catch.hpp"
#include "command.hpp"
#include "util/descriptor.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
namespace fs = std::filesystem;

namespace {

const std::string one_kernel = "run -m 8 -n 8 -k 8 --device emulator --tuning off";

/// A host compiler that takes a minute, in a child, and writes down its own process and the child's.
class SlowCompiler {
 public:
  SlowCompiler() {
    write_file(path("c++"),
               "#!/bin/sh\ncase \"$*\" in\n*--version*) echo slow 1; exit 0 ;;\n*-fsyntax-only*) exit 1 ;;\nesac\n"
               "sleep 60 &\necho $$ $! >'" +
                   path("started.new") + "'\nmv '" + path("started.new") + "' '" + path("started") + "'\nwait\n");
    fs::permissions(path("c++"), fs::perms::owner_all);
    fs::create_directory(path("tmp"));
  }
  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }
  std::vector<std::string> leftovers() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path("tmp"))) names.push_back(entry.path().filename());
    return names;
  }

  /// The compiler and its child, once they run.
  std::vector<pid_t> processes() const {
    for (int i = 0; i < 3000 && !fs::exists(path("started")); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::istringstream text(file_text(path("started")));
    std::vector<pid_t> ids;
    for (pid_t id; text >> id;) ids.push_back(id);
    return ids;
  }

 private:
  TemporaryDirectory directory_;
};

/// Now or soon.
bool ends(pid_t process) {
  for (int i = 0; i < 500; ++i) {
    if (has_ended(process)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

/// A thread's stack has this size by default, which no address space holds.
class NoThreadsInChildren {
 public:
  NoThreadsInChildren() {
    REQUIRE(getrlimit(RLIMIT_STACK, &old_) == 0);
    const rlimit huge{rlim_t(1) << 47, old_.rlim_max};
    if (old_.rlim_max < huge.rlim_cur) SKIP("the limit on stacks cannot be raised");
    REQUIRE(setrlimit(RLIMIT_STACK, &huge) == 0);
  }
  ~NoThreadsInChildren() { setrlimit(RLIMIT_STACK, &old_); }
  NoThreadsInChildren(const NoThreadsInChildren&) = delete;
  NoThreadsInChildren& operator=(const NoThreadsInChildren&) = delete;

 private:
  rlimit old_;
};

void make_old(const fs::path& path) { fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(1)); }

}  // namespace

TEST_CASE("A signal that ends the command during a compile ends the compiler and leaves nothing behind", "[cli]") {
  NEEDS_COMMAND();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    CAPTURE(signal);
    const Command jitgemm;
    const SlowCompiler compiler;
    const ScopedEnvironment tmpdir("TMPDIR", compiler.path("tmp").c_str());
    const ScopedEnvironment cxx("JITGEMM_CXX", compiler.path("c++").c_str());
    const pid_t command = jitgemm.start(one_kernel);
    const std::vector<pid_t> processes = compiler.processes();
    REQUIRE(processes.size() == 2);
    CHECK(compiler.leftovers().size() == 1);
    kill(command, signal);
    CHECK(wait_for(command) == -signal);
    CHECK(compiler.leftovers().empty());
    for (const pid_t process : processes) CHECK(ends(process));
  }
}

TEST_CASE("A command that was started with SIGINT ignored goes on", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const SlowCompiler compiler;
  const ScopedEnvironment tmpdir("TMPDIR", compiler.path("tmp").c_str());
  const ScopedEnvironment cxx("JITGEMM_CXX", compiler.path("c++").c_str());
  auto* const before = signal(SIGINT, SIG_IGN);
  const pid_t command = jitgemm.start(one_kernel);
  signal(SIGINT, before);
  REQUIRE(compiler.processes().size() == 2);
  kill(command, SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(waitpid(command, nullptr, WNOHANG) == 0);
  kill(command, SIGTERM);
  CHECK(wait_for(command) == -SIGTERM);
}

TEST_CASE("What a killed command leaves behind goes with the next compile, and nothing else does", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const SlowCompiler compiler;
  const ScopedEnvironment tmpdir("TMPDIR", compiler.path("tmp").c_str());
  const auto in_tmp = [&](const std::string& name) { return fs::path(compiler.path("tmp")) / name; };
  {
    const ScopedEnvironment cxx("JITGEMM_CXX", compiler.path("c++").c_str());
    const pid_t command = jitgemm.start(one_kernel);
    REQUIRE(compiler.processes().size() == 2);
    kill(command, SIGKILL);
    wait_for(command);
    for (const pid_t process : compiler.processes()) kill(process, SIGKILL);
  }
  REQUIRE(compiler.leftovers().size() == 1);
  const fs::path left = in_tmp(compiler.leftovers()[0]);
  CHECK(jitgemm(one_kernel).status == 0);
  CHECK(fs::exists(left));  // so new that its owner may not have locked it yet
  make_old(left);

  for (const char* name : {"jitgemm-compile-locked", "jitgemm-compile-other-name", "jitgemm-abcdef", "linked"}) {
    fs::create_directory(in_tmp(name));
    write_file(in_tmp(name) / "file", "text");
    make_old(in_tmp(name));
  }
  fs::create_directory_symlink(in_tmp("linked"), in_tmp("jitgemm-compile-linked"));
  const Descriptor locked(open(in_tmp("jitgemm-compile-locked").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(flock(locked.get(), LOCK_EX | LOCK_NB) == 0);
  fs::remove_all(jitgemm.path("cache"));
  CHECK(jitgemm(one_kernel).status == 0);
  CHECK_FALSE(fs::exists(left));
  for (const char* name :
       {"jitgemm-compile-locked", "jitgemm-compile-other-name", "jitgemm-abcdef", "linked", "jitgemm-compile-linked"})
    CHECK(fs::exists(in_tmp(name) / "file"));
}

TEST_CASE("Where no thread can be started, the command does what needs none", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const NoThreadsInChildren none;
  const Output version = jitgemm("--version");
  CHECK(version.status == 0);
  CHECK(version.out.starts_with("jitgemm "));
  CHECK(version.err == "");
  CHECK(jitgemm("explain -m 8 -n 8 -k 8 --device emulator --tuning off").status == 0);
}
