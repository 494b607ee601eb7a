#include "backend/emulator/child_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <set>
#include <string_view>

#include "jitgemm/error.hpp"
#include "util/atomic_file.hpp"
#include "util/errno_text.hpp"

namespace jitgemm::emulator {

namespace {

struct Children {
  std::mutex mutex;
  std::set<pid_t> running;
  bool grouped = false;
};
Children& children() {
  static Children& instance = *new Children;  // never destroyed: threads may compile while the process ends
  return instance;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

/// A compiler finds its assembler by the environment, which is not to be trusted where a program has more rights than
/// who started it.
std::vector<std::string> environment_with_tmpdir(const std::string& directory) {
  // zig's caches would otherwise be in HOME, which there may be none of; a kernel leaves nothing in them worth keeping.
  constexpr std::array names{"TMPDIR=", "ZIG_GLOBAL_CACHE_DIR=", "ZIG_LOCAL_CACHE_DIR="};
  std::vector<std::string> environment;
  for (const char* name : names) environment.push_back(name + directory);
  if (getauxval(AT_SECURE) != 0) {
    environment.emplace_back("PATH=/usr/bin:/bin");
    return environment;
  }
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view variable = *entry;
    if (std::ranges::none_of(names, [&](const char* name) { return variable.starts_with(name); }))
      environment.emplace_back(variable);
  }
  return environment;
}

/// Returns errno's value of what failed, or 0.
int spawn(pid_t& child, const std::vector<std::string>& words, const std::string& log, const std::string& directory,
          bool grouped) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, short(grouped ? POSIX_SPAWN_SETPGROUP : 0));
  const std::vector<std::string> environment = environment_with_tmpdir(directory);
  const int failed = posix_spawn(&child, words[0].c_str(), &actions, &attributes, pointers(words).data(),
                                 pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return failed;
}

[[noreturn]] void cannot_run(const std::string& program, int error) {
  ErrorCode code = ErrorCode::no_compiler;
  const char* way_out = "set JITGEMM_CXX to a C++20 compiler";
  if (error == ENOMEM) {
    code = ErrorCode::out_of_memory;
    way_out = "free some memory";
  } else if (error == EAGAIN) {
    code = ErrorCode::io;
    way_out = "end some processes, or raise the limit on them (ulimit -u)";
  } else if (is_out_of_descriptors(error)) {
    code = ErrorCode::io;
    way_out = more_descriptors;
  }
  throw Error(code, "cannot run " + program + ": " + errno_text(error) + "; " + way_out).with_call("posix_spawn");
}

}  // namespace

Outcome run_program(const std::vector<std::string>& words, const std::string& log, const std::string& directory) {
  pid_t child = 0;
  {
    std::set<pid_t> one{child};
    auto place = one.extract(one.begin());  // made first: what runs must not be lost for want of memory
    const std::lock_guard lock(children().mutex);
    if (const int failed = spawn(child, words, log, directory, children().grouped)) cannot_run(words[0], failed);
    place.value() = child;
    children().running.insert(std::move(place));
  }
  // Its number is its own until it is waited for below.
  siginfo_t ended;
  while (waitid(P_PID, id_t(child), &ended, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  const std::lock_guard lock(children().mutex);
  children().running.erase(child);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(log).value_or("")};
}

void group_programs() {
  const std::lock_guard lock(children().mutex);
  children().grouped = true;
}

void end_programs() {
  children().mutex.lock();  // for good
  for (const pid_t child : children().running) kill(children().grouped ? -child : child, SIGKILL);
}

}  // namespace jitgemm::emulator
