#include <fcntl.h>

#include <cstdio>
#include <new>

#include "command/command_line.hpp"
#include "command/interrupt.hpp"

namespace {

/// Where standard input, output or error is closed, the next file that is opened would become it. What stands in for it
/// fails when it is used.
void hold_standard_streams() {
  for (int descriptor = 0; descriptor < 3; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) < 0) (void)!open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace

int main(int argc, char** argv) {
  hold_standard_streams();
  try {
    jitgemm::cli::clean_up_when_interrupted();
    return jitgemm::cli::run_command_line(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("jitgemm: error: out of host memory; free some, or raise the limit on it (ulimit -v)\n", stderr);
    return 1;
  }
}
