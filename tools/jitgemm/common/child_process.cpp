#include "common/child_process.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <utility>

#include "jitgemm/error.hpp"
#include "util/errno_text.hpp"

namespace jitgemm::cli {
namespace {

/// Strings as execve() takes them.
class Words {
 public:
  explicit Words(std::vector<std::string> words) : words_(std::move(words)) {
    for (std::string& word : words_) pointers_.push_back(word.data());
    pointers_.push_back(nullptr);
  }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  char** get() { return pointers_.data(); }

 private:
  std::vector<std::string> words_;
  std::vector<char*> pointers_;
};

std::vector<std::string> environment_with(const std::vector<std::string>& own) {
  std::vector<std::string> environment = own;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry, name = text.substr(0, text.find('=') + 1);
    if (std::ranges::none_of(own, [&](const std::string& other) { return other.starts_with(name); }))
      environment.emplace_back(text);
  }
  return environment;
}

[[noreturn]] void cannot_start(int error) {
  throw Error(ErrorCode::io,
              fmt::format("cannot start a process of its own for each GPU: {}; leave --gpus out", errno_text(error)));
}

}  // namespace

ChildProcess::ChildProcess(const ChildCommand& command) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) cannot_start(errno);
  socket_.emplace(ends[0]);
  const Descriptor theirs(ends[1]);
  Words words(command.words), environment(environment_with(command.environment));
  posix_spawn_file_actions_t actions;
  if (const int error = posix_spawn_file_actions_init(&actions)) cannot_start(error);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
  const int error = posix_spawn(&pid_, command.program.c_str(), &actions, nullptr, words.get(), environment.get());
  posix_spawn_file_actions_destroy(&actions);
  if (error) {
    pid_ = 0;
    cannot_start(error);
  }
}

ChildProcess::~ChildProcess() {
  if (alive()) end("the run is over");
}

void ChildProcess::send(const std::string& line) {
  const std::string bytes = line + "\n";
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count = ::send(descriptor(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // one that has died says so when it is read from
    sent += std::size_t(count);
  }
}

std::vector<std::string> ChildProcess::receive() {
  char buffer[1 << 14];
  const ssize_t count = ::recv(descriptor(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (count <= 0) {
    wait();
    return {};
  }
  received_.append(buffer, std::size_t(count));
  std::vector<std::string> lines;
  for (std::size_t end; (end = received_.find('\n')) != std::string::npos; received_.erase(0, end + 1))
    lines.push_back(received_.substr(0, end));
  return lines;
}

void ChildProcess::end(const std::string& why) {
  ::kill(pid_, SIGKILL);
  wait();
  how_it_ended_ = "was ended: " + why;
}

void ChildProcess::finish() {
  socket_.reset();
  wait();
}

void ChildProcess::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  how_it_ended_ = WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                                      : fmt::format("ended with status {}", WEXITSTATUS(status));
}

ParentProcess::File ParentProcess::take_over(int descriptor, const char* mode) {
  File file(::fdopen(::fcntl(descriptor, F_DUPFD_CLOEXEC, 3), mode), &std::fclose);
  const Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!file || null.get() < 0 || ::dup2(null.get(), descriptor) < 0)
    throw Error(ErrorCode::io,
                fmt::format("a worker cannot set up its streams: {}; leave --gpus out", errno_text(errno)));
  return file;
}

ParentProcess::ParentProcess(pid_t parent)
    : alone_((::prctl(PR_SET_PDEATHSIG, SIGKILL), ::getppid() != parent)),
      in_(take_over(STDIN_FILENO, "r")),
      out_(take_over(STDOUT_FILENO, "w")) {}

std::optional<std::string> ParentProcess::read_line() {
  std::string line;
  for (int c; !alone_ && (c = std::fgetc(in_.get())) != EOF && c != '\n';) line += char(c);
  if (line.empty()) return std::nullopt;
  return line;
}

void ParentProcess::write_line(const std::string& line) {
  fmt::print(out_.get(), "{}\n", line);
  std::fflush(out_.get());
}

}  // namespace jitgemm::cli
