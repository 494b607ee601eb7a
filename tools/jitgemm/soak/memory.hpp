#pragma once

#include <cstddef>

namespace jitgemm::cli {

struct MemoryInUse {
  std::size_t device = 0;  ///< of the current context's, by all processes; of the emulator's, this process's heap
  std::size_t host = 0;    ///< resident, of this process
};
MemoryInUse memory_in_use(bool emulated);

}  // namespace jitgemm::cli
