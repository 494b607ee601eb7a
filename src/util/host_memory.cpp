#include "util/host_memory.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace jitgemm {

bool host_can_read(const void* address) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return true;  // which refuses the pointer
  const bool readable = write(ends[1], address, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return readable;
}

}  // namespace jitgemm
