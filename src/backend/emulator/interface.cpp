#include "backend/emulator/interface.hpp"

#include "backend/emulator/operations.hpp"

namespace jitgemm::emulator {

u32 thread_index() { return current->index; }
u32 block_index() { return current->block->index; }
u32 grid_size() { return current->launch->grid(); }
u32 dynamic_smem() { return current->block->memory.base(); }

const device::emulator::Interface& interface() {
  static constexpr device::emulator::Interface table{
#define FUNCTION(result, name, parameters) .name = name,
#include "backend/emulator/functions.def"
  };
  return table;
}

}  // namespace jitgemm::emulator
