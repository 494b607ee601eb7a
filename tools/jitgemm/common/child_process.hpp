#pragma once

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "util/descriptor.hpp"

namespace jitgemm::cli {

/// What a child process runs.
struct ChildCommand {
  std::vector<std::string> words;             ///< its name first
  std::vector<std::string> environment = {};  ///< NAME=VALUE in the place of this process's own
  std::string program = "/proc/self/exe";     ///< this command
};

/// A process whose standard input and output are a socket to here. It ends with this object.
class ChildProcess {
 public:
  /// Throws Error{io}.
  explicit ChildProcess(const ChildCommand& command);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// To poll, while it is alive.
  int descriptor() const { return socket_->get(); }
  bool alive() const { return pid_ > 0; }

  void send(const std::string& line);
  /// The whole lines that have arrived since. One that has ended says so here: it is then not alive.
  std::vector<std::string> receive();

  void end(const std::string& why);
  /// Of one that ends at the end of its input.
  void finish();
  /// "was ended by signal 9"
  const std::string& how_it_ended() const { return how_it_ended_; }

 private:
  void wait();

  std::string received_, how_it_ended_;
  std::optional<Descriptor> socket_;
  pid_t pid_ = 0;
};

/// The option, of a hidden subcommand that a child runs, that says whose child it is.
inline constexpr const char* parent_option = "--parent";

/// The child's end of the socket. Its own standard input and output are then /dev/null: a compiler that outlives it
/// must not keep the socket open.
class ParentProcess {
 public:
  /// From now on this process ends with the one that started it: one that outlives a killed run would disturb what the
  /// next run measures.
  explicit ParentProcess(pid_t parent);

  /// nullopt when there is no more, and when the parent was killed before this was made.
  std::optional<std::string> read_line();
  void write_line(const std::string& line);

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  static File take_over(int descriptor, const char* mode);

  bool alone_;
  File in_, out_;
};

}  // namespace jitgemm::cli
