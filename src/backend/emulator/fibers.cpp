#include "backend/emulator/fibers.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <cstring>
#include <mutex>
#include <new>

#include "jitgemm/error.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace jitgemm::emulator {

namespace {

namespace context = boost::context::detail;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool with_asan = true;
void announce_switch(void** keep, const Fiber& to) {
  __sanitizer_start_switch_fiber(keep, to.stack_bottom, to.stack_bytes);
}
void finish_switch(void* kept) { __sanitizer_finish_switch_fiber(kept, nullptr, nullptr); }
void unpoison(void* memory, std::size_t bytes) { __asan_unpoison_memory_region(memory, bytes); }
void* host_fiber() { return nullptr; }
void* create_fiber() { return nullptr; }
void destroy_fiber(void*) {}
#elif defined(__SANITIZE_THREAD__)
constexpr bool with_asan = false;
void announce_switch(void**, const Fiber& to) { __tsan_switch_to_fiber(to.sanitized, 0); }
void finish_switch(void*) {}
void unpoison(void*, std::size_t) {}
void* host_fiber() { return __tsan_get_current_fiber(); }
void* create_fiber() { return __tsan_create_fiber(0); }
void destroy_fiber(void* fiber) { __tsan_destroy_fiber(fiber); }
#else
constexpr bool with_asan = false;
void announce_switch(void**, const Fiber&) {}
void finish_switch(void*) {}
void unpoison(void*, std::size_t) {}
void* host_fiber() { return nullptr; }
void* create_fiber() { return nullptr; }
void destroy_fiber(void*) {}
#endif

constexpr std::size_t guard_bytes = 4096;

/// Room for the alignment too.
std::size_t mapped_bytes(int count) { return stack_bytes * (std::size_t(count) + 1); }

void resumed(context::transfer_t transfer) {
  if (transfer.data) static_cast<Fiber*>(transfer.data)->context = transfer.fctx;
}

void start(context::transfer_t transfer) {
  finish_switch(nullptr);
  resumed(transfer);
  own_stack_top().entry();
}

struct Pool {
  std::mutex mutex;
  std::vector<std::unique_ptr<Stacks>> free;  // the one that waits longest first
  std::size_t kept = 0;                       // fibers of them all
};
Pool& pool() {
  static Pool instance;
  return instance;
}

}  // namespace

void Fiber::adopt_host_stack() {
  sanitized = host_fiber();
  if (!with_asan) return;
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  void* bottom = nullptr;
  std::size_t bytes = 0;
  pthread_attr_getstack(&attributes, &bottom, &bytes);
  pthread_attr_destroy(&attributes);
  stack_bottom = bottom;
  stack_bytes = bytes;
}

void switch_fiber(Fiber& from, Fiber& to) {
  announce_switch(&from.fake_stack, to);
  const context::transfer_t transfer = context::jump_fcontext(to.context, &from);
  finish_switch(from.fake_stack);
  resumed(transfer);
}

void leave_fiber(Fiber&, Fiber& to) {
  announce_switch(nullptr, to);
  context::jump_fcontext(to.context, nullptr);
  __builtin_unreachable();
}

Stacks::Stacks(int count) : count_(count), sanitized_(std::size_t(count)) {
  mapped_ =
      mmap(nullptr, mapped_bytes(count), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped_ == MAP_FAILED)
    throw Error(ErrorCode::out_of_memory,
                "no memory for the emulator's stacks; free some, or set JITGEMM_EMULATOR_RESIDENT lower");
  const auto first = reinterpret_cast<std::uintptr_t>(mapped_) + stack_bytes - 1;
  memory_ = reinterpret_cast<char*>(first - first % stack_bytes);
  for (int i = 0; i < count; ++i) mprotect(memory_ + i * stack_bytes, guard_bytes, PROT_NONE);
}

Stacks::~Stacks() {
  for (const Sanitized& sanitized : sanitized_)
    if (sanitized.fiber) destroy_fiber(sanitized.fiber);
  unpoison(memory_, stack_bytes * count_);
  munmap(mapped_, mapped_bytes(count_));
}

void Stacks::prepare(int i, Fiber& fiber, const StackTop& top) {
  char* bottom = memory_ + i * stack_bytes + guard_bytes;
  const std::size_t bytes = stack_bytes - guard_bytes - 64;  // a cache line for the top
  unpoison(bottom, bytes);                                   // what an earlier fiber left behind
  // Stacks of equal page offset would fight for the same cache sets.
  const std::size_t colour = std::size_t(i) * 17 % 64 * 64;
  fiber.stack_bottom = bottom;
  fiber.stack_bytes = bytes;
  fiber.fake_stack = nullptr;
  // One is slow to make, and remembers the calls that it never returned from, of which there may be 65536.
  constexpr int most_uses = 500;
  Sanitized& sanitized = sanitized_[std::size_t(i)];
  if (sanitized.fiber && ++sanitized.uses == most_uses) {
    destroy_fiber(sanitized.fiber);
    sanitized = {};
  }
  if (!sanitized.fiber) sanitized.fiber = create_fiber();
  fiber.sanitized = sanitized.fiber;
  std::memcpy(memory_ + (i + 1) * stack_bytes - sizeof top, &top, sizeof top);
  fiber.context = context::make_fcontext(bottom + bytes - colour, bytes - colour, start);
}

std::unique_ptr<Stacks> take_stacks(int count) {
  {
    std::lock_guard lock(pool().mutex);
    auto& free = pool().free;
    for (std::size_t i = 0; i < free.size(); ++i) {
      if (free[i]->count() != count) continue;
      auto stacks = std::move(free[i]);
      free.erase(free.begin() + i);
      pool().kept -= std::size_t(count);
      return stacks;
    }
  }
  return std::make_unique<Stacks>(count);
}

void return_stacks(std::unique_ptr<Stacks> stacks) noexcept {
  std::lock_guard lock(pool().mutex);
  auto& [mutex, free, kept] = pool();
  const auto count = std::size_t(stacks->count());
  try {
    free.push_back(std::move(stacks));
  } catch (const std::bad_alloc&) {
    return;  // and with it these stacks go
  }
  kept += count;
  while (kept > most_kept) {
    kept -= std::size_t(free.front()->count());
    free.erase(free.begin());
  }
}

}  // namespace jitgemm::emulator
