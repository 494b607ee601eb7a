// What kernels on several devices, each emulated by a thread of its own, tell each other through memory.
#include "backend/emulator/system_scope.hpp"

#include <malloc.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <thread>

#include "backend/emulator/operations.hpp"

namespace jitgemm::emulator {

namespace {

std::uintptr_t number_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

/// The words by which devices tell each other something, and what was last released there.
struct Flags {
  std::shared_mutex mutex;
  std::map<std::uintptr_t, u32> released;
  std::map<std::uintptr_t, u64> words;                   // stored last where relaxed stores were
  std::map<std::uintptr_t, std::uintptr_t> host_memory;  // where each begins and ends
  std::atomic<bool> any = false;

  bool is_of_host(std::uintptr_t address) const {
    const auto after = host_memory.upper_bound(address);
    return after != host_memory.begin() && address < std::prev(after)->second;
  }
};
Flags& flags() {
  static Flags all;
  return all;
}

void check_flag(Thread& thread, const u32* address, const char* operation) {
  thread.launch->check_dependencies(thread, operation);
  if (number_of(address) % 4 != 0 || number_of(address) < 0x10000) broken_global(address, 4);
}

void check_words(Thread& thread, const u64* address, u32 count, const char* operation) {
  thread.launch->check_dependencies(thread, operation);
  if (number_of(address) % (8 * count) != 0 || number_of(address) < 0x10000) broken_global(address, 8 * count);
}

/// Of which kernels know from here on that ld_relaxed_sys and st_relaxed_sys alone may touch it.
void store_word(u64* address, u64 x) {
  Flags& all = flags();
  const std::unique_lock lock(all.mutex);
  all.any = true;
  all.words[number_of(address)] = x;
  std::atomic_ref(*address).store(x, std::memory_order_relaxed);
}

u64 load_word(Thread& thread, const u64* address) {
  Flags& all = flags();
  std::shared_lock lock(all.mutex);
  const u64 x = std::atomic_ref(*const_cast<u64*>(address)).load(std::memory_order_relaxed);
  const auto stored = all.words.find(number_of(address));
  const bool is_known = x == 0 || (stored != all.words.end() && stored->second == x);
  lock.unlock();
  if (!is_known)
    thread.launch->fault("ld_relaxed_sys of %p has 0x%llx, which st_relaxed_sys did not store there", address, x);
  return x;
}

}  // namespace

void PendingWords::put(u64* address, u64 x, bool at_once) {
  words_.erase(address);
  if (at_once)
    store_word(address, x);
  else
    words_[address] = x;
}

void PendingWords::show_one(bool lowest) {
  const auto word = lowest ? words_.begin() : std::prev(words_.end());
  store_word(word->first, word->second);
  words_.erase(word);
}

void release_flag(u32* address, u32 x) {
  Flags& all = flags();
  const std::unique_lock lock(all.mutex);
  all.any = true;
  all.released[number_of(address)] = x;
  std::atomic_ref(*address).store(x, std::memory_order_release);
}

void forget_flags(const void* memory) noexcept {
  Flags& all = flags();
  if (!memory || !all.any) return;
  const std::uintptr_t begin = number_of(memory), end = begin + malloc_usable_size(const_cast<void*>(memory));
  const std::unique_lock lock(all.mutex);
  all.released.erase(all.released.lower_bound(begin), all.released.lower_bound(end));
  all.words.erase(all.words.lower_bound(begin), all.words.lower_bound(end));
  all.host_memory.erase(begin);
}

void add_host_memory(const void* memory, std::size_t bytes) {
  Flags& all = flags();
  const std::unique_lock lock(all.mutex);
  all.any = true;
  all.host_memory[number_of(memory)] = number_of(memory) + bytes;
}

void check_word(const void* address) {
  Flags& all = flags();
  if (!all.any) return;
  std::shared_lock lock(all.mutex);
  const bool is_flag = all.released.contains(number_of(address)),
             is_word = all.words.contains(number_of(address) / 8 * 8);
  lock.unlock();  // nothing is destroyed on the way of a fault
  if (is_word)
    current->launch->fault("access of %p, in a word of other devices, by neither ld_relaxed_sys nor st_relaxed_sys",
                           address);
  if (is_flag)
    current->launch->fault("access of %p, a flag of other devices, by neither ld_acquire_sys nor st_release_sys",
                           address);
}

u32 ld_acquire_sys(const u32* address) {
  Thread& thread = *current;
  thread.launch->preempt();
  check_flag(thread, address, "ld_acquire_sys");
  thread.acquired_by_generic_proxy = true;
  Flags& all = flags();
  std::shared_lock lock(all.mutex);
  const u32 x = std::atomic_ref(*const_cast<u32*>(address)).load(std::memory_order_acquire);
  const auto released = all.released.find(number_of(address));
  const bool is_released = released != all.released.end() && released->second == x;
  const bool is_known = x == 0 || is_released || all.is_of_host(number_of(address));
  lock.unlock();
  if (!is_known)
    thread.launch->fault("ld_acquire_sys of %p has %u, which neither st_release_sys nor a copy stored there", address,
                         x);
  return x;
}

void st_release_sys(u32* address, u32 x) {
  Thread& thread = *current;
  Launch& launch = *thread.launch;
  launch.preempt();
  check_flag(thread, address, "st_release_sys");
  if (thread.last_store_group > thread.published_group)
    launch.fault("st_release_sys by a thread whose TMA stores of group %u are not waited for and fenced",
                 thread.last_store_group);
  release_flag(address, x);
}

void ld_relaxed_sys(const u64* address, u64* words, u32 count) {
  Thread& thread = *current;
  Launch& launch = *thread.launch;
  check_words(thread, address, count, "ld_relaxed_sys");
  const bool backwards = count > 1 && launch.random() % 2 != 0;
  for (u32 i = 0; i < count; ++i) {
    launch.preempt();
    const u32 at = backwards ? count - 1 - i : i;
    words[at] = load_word(thread, address + at);
  }
}

/// Each word becomes visible to other devices when it likes to, in no order.
void st_relaxed_sys(u64* address, const u64* words, u32 count) {
  Thread& thread = *current;
  check_words(thread, address, count, "st_relaxed_sys");
  for (u32 i = 0; i < count; ++i) {
    thread.launch->preempt();
    thread.launch->put_word(address + i, words[i]);
  }
}

void between_polls() {
  std::this_thread::yield();  // to the threads of other devices
  current->launch->yield();
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

void nanosleep(u32) { between_polls(); }

}  // namespace jitgemm::emulator
