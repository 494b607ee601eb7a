#include "command/interrupt.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>

#include "backend/emulator/child_process.hpp"
#include "backend/emulator/temporary_directory.hpp"

namespace jitgemm::cli {
namespace {

int pipe_ends[2];  // from the handler, which may do next to nothing, to the thread that cleans up

void hand_over(int signal) {
  const int error = errno;
  const unsigned char number = static_cast<unsigned char>(signal);
  (void)!write(pipe_ends[1], &number, 1);
  errno = error;
}

void clean_up() {
  unsigned char number;
  while (read(pipe_ends[0], &number, 1) != 1) {
  }
  emulator::end_programs();
  emulator::remove_temporary_directories();
  // So that the command ends by the signal, as whoever started it expects.
  signal(number, SIG_DFL);
  kill(getpid(), number);
}

}  // namespace

void clean_up_when_interrupted() {
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return;
  try {
    std::thread(clean_up).detach();
  } catch (const std::system_error&) {  // no thread is to be had: a signal ends the command as it ends any other
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    return;
  }
  emulator::group_programs();
  struct sigaction action = {};
  action.sa_handler = hand_over;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction old;
    if (sigaction(number, nullptr, &old) == 0 && old.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
  }
}

}  // namespace jitgemm::cli
