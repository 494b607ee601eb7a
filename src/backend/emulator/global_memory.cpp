#include "backend/emulator/global_memory.hpp"

#include <cstring>

#include "backend/emulator/operations.hpp"

namespace jitgemm::emulator {

namespace {

void check_alignment(Thread& thread, const void* address, const char* operation) {
  if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0)
    thread.launch->fault("%s at %p, which is not a multiple of 16", operation, address);
}

bool is_of_cluster(const Thread& thread, const PartialCell& cell) {
  const u32 size = thread.launch->cluster_size();
  return cell.block / size == thread.block->index / size;
}
u32 writing_thread(const Thread& thread, const PartialCell& cell) {
  return cell.writer.entity % thread.launch->threads();
}

/// Whether what was released through a counter is known to the thread.
bool acquired(Thread& thread, const PartialCell& cell) {
  if (!cell.released) return false;
  for (const auto& acquisition : thread.block->cluster->global.acquisitions)
    if (acquisition.counter == cell.counter && acquisition.position > cell.position && thread.knows(acquisition.by))
      return true;
  return false;
}

}  // namespace

void flush(LaunchGlobalMemory& memory) {
  for (auto& [address, cell] : memory.cells)
    if (!cell.released) std::memcpy(reinterpret_cast<void*>(address), cell.data, sizeof cell.data);
  memory.cells.clear();
}

void broken_global(const void* address, u32 bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) < 0x10000)  // where Linux maps nothing
    current->launch->fault("access of %u bytes of global memory at %p, where an operand is that no call gives", bytes,
                           address);
  current->launch->fault("access of %u bytes of global memory at %p, which is not a multiple of that", bytes, address);
}

void check_dependencies(const char* operation) { current->launch->check_dependencies(*current, operation); }

void griddepcontrol_wait() {
  Thread& thread = *current;
  thread.launch->preempt();
  thread.launch->wait_for_dependencies(thread);
}

void griddepcontrol_launch_dependents() {
  Launch& launch = *current->launch;
  if (!launch.is_dependent())
    launch.fault(
        "griddepcontrol_launch_dependents without DEPENDENT_LAUNCH: the next launch may overwrite what this one reads");
  if (launch.holds_next_back())
    launch.fault("griddepcontrol_launch_dependents in a launch that holds the next one back");
}

void st_global_cg(void* address, const void* data) {
  Thread& thread = *current;
  Launch& launch = *thread.launch;
  launch.preempt();
  launch.check_dependencies(thread, "st_global_cg");
  check_alignment(thread, address, "st_global_cg");
  const auto key = reinterpret_cast<std::uintptr_t>(address);
  auto [place, is_new] = launch.global().cells.try_emplace(key);
  PartialCell& cell = place->second;
  if (!is_new) {
    if (!(is_of_cluster(thread, cell) && thread.knows(cell.writer)) && !acquired(thread, cell))
      launch.fault("race: st_global_cg at %p, not synchronised with its previous writer in block %u", address,
                   cell.block);
  }
  if (is_new || cell.released || !is_of_cluster(thread, cell)) thread.block->cluster->global.unreleased.push_back(key);
  cell.block = thread.block->index;
  cell.writer = thread.now;
  cell.released = false;
  std::memcpy(cell.data, data, sizeof cell.data);
}

void ld_global_cg(const void* address, void* data) {
  Thread& thread = *current;
  Launch& launch = *thread.launch;
  launch.preempt();
  launch.check_dependencies(thread, "ld_global_cg");
  check_alignment(thread, address, "ld_global_cg");
  const auto& cells = launch.global().cells;
  const auto found = cells.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == cells.end()) launch.fault("ld_global_cg at %p, which no block has written in this launch", address);
  const PartialCell& cell = found->second;
  if (is_of_cluster(thread, cell)) {
    if (!thread.knows(cell.writer) && !acquired(thread, cell))
      launch.fault("race: ld_global_cg at %p, not synchronised with its writer, thread %u of block %u", address,
                   writing_thread(thread, cell), cell.block);
  } else if (!cell.released) {
    launch.fault("ld_global_cg at %p of what thread %u of block %u has written and not released", address,
                 writing_thread(thread, cell), cell.block);
  } else if (!acquired(thread, cell)) {
    launch.fault("ld_global_cg at %p of what block %u has released by increment %u of counter %p, not acquired",
                 address, cell.block, cell.position, cell.counter);
  }
  std::memcpy(data, cell.data, sizeof cell.data);
}

namespace {

void begin_atomic(Thread& thread, const u32* address, const char* operation) {
  thread.launch->preempt();
  thread.launch->check_dependencies(thread, operation);
  if (reinterpret_cast<std::uintptr_t>(address) % 4 != 0) broken_global(address, 4);
}

u32 increment(u32* address, u32 limit) {
  const u32 old = *address;
  *address = old >= limit ? 0 : old + 1;
  return old;
}

}  // namespace

u32 atom_inc_relaxed_gpu(u32* address, u32 limit) {
  begin_atomic(*current, address, "atom_inc_relaxed_gpu");
  return increment(address, limit);
}

u32 atom_inc_acq_rel_gpu(u32* address, u32 limit) {
  Thread& thread = *current;
  Launch& launch = *thread.launch;
  begin_atomic(thread, address, "atom_inc_acq_rel_gpu");
  LaunchGlobalMemory& global = launch.global();
  ClusterGlobalMemory& mine = thread.block->cluster->global;
  const u32 position = global.increments[address]++;
  auto rest = mine.unreleased.begin();
  for (const std::uintptr_t key : mine.unreleased) {
    PartialCell& cell = global.cells.at(key);
    if (thread.knows(cell.writer)) {
      cell.released = true;
      cell.counter = address;
      cell.position = position;
      std::memcpy(reinterpret_cast<void*>(key), cell.data, sizeof cell.data);
    } else {
      *rest++ = key;
    }
  }
  mine.unreleased.erase(rest, mine.unreleased.end());
  const u32 old = increment(address, limit);
  mine.acquisitions.push_back({address, position, thread.now});
  return old;
}

}  // namespace jitgemm::emulator
