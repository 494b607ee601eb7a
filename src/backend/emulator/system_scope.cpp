// What kernels on several devices, each emulated by a thread of its own, tell each other through memory.
#include <atomic>
#include <chrono>
#include <thread>

#include "backend/emulator/operations.hpp"

namespace jitgemm::emulator {

namespace {

void check_flag(Thread& thread, const u32* address, const char* operation) {
  thread.launch->check_dependencies(thread, operation);
  if (reinterpret_cast<std::uintptr_t>(address) % 4 != 0 || reinterpret_cast<std::uintptr_t>(address) < 0x10000)
    broken_global(address, 4);
}

}  // namespace

u32 ld_acquire_sys(const u32* address) {
  Thread& thread = *current;
  thread.launch->preempt();
  check_flag(thread, address, "ld_acquire_sys");
  thread.acquired_by_generic_proxy = true;
  return std::atomic_ref(*const_cast<u32*>(address)).load(std::memory_order_acquire);
}

void st_release_sys(u32* address, u32 x) {
  Thread& thread = *current;
  Launch& launch = *thread.launch;
  launch.preempt();
  check_flag(thread, address, "st_release_sys");
  if (thread.last_store_group > thread.published_group)
    launch.fault("st_release_sys by a thread whose TMA stores of group %u are not waited for and fenced",
                 thread.last_store_group);
  std::atomic_ref(*address).store(x, std::memory_order_release);
}

void fence_proxy_async_global() {
  Thread& thread = *current;
  thread.launch->preempt();
  thread.published_group = thread.written_group;
  thread.acquired_by_generic_proxy = false;
}

u64 global_nanoseconds() {
  return u64(std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
                 .count());
}

void nanosleep(u32) {
  std::this_thread::yield();  // to the threads of other devices
  current->launch->yield();
}

}  // namespace jitgemm::emulator
