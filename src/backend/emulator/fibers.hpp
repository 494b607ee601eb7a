#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace jitgemm::emulator {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t stack_bytes = 256 << 10;  // their frames are larger
#else
constexpr std::size_t stack_bytes = 64 << 10;
#endif

// ThreadSanitizer takes a fiber for a thread, of which it knows 8128: so many run in a launch, unless a cluster needs
// more, and so many are kept.
#ifdef __SANITIZE_THREAD__
constexpr std::size_t most_running = 3072, most_kept = 2048;
#else
constexpr std::size_t most_running = std::size_t(1) << 20, most_kept = std::size_t(1) << 14;
#endif

/// At the upper end of each fiber's stack. Stacks lie at multiples of their size, so that a fiber finds it without
/// thread-local storage, which is slow in a shared library.
struct StackTop {
  void* owner;
  void (*entry)();
};

/// Of the fiber that calls it.
[[gnu::always_inline]] inline StackTop& own_stack_top() {
  const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  return reinterpret_cast<StackTop*>((frame | (stack_bytes - 1)) + 1)[-1];
}

/// A stack and where it was left. The host's thread is one too, with a stack of its own.
struct Fiber {
  boost::context::detail::fcontext_t context = nullptr;
  const void* stack_bottom = nullptr;
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's
  void* sanitized = nullptr;   // ThreadSanitizer's

  void adopt_host_stack();
};

/// Leaves `from`, continues `to`, and returns when somebody switches to `from` again. Fibers of one thread only switch
/// to each other.
void switch_fiber(Fiber& from, Fiber& to);
/// The same; `from` never runs again, and its stack may be reused once `to` runs.
[[noreturn]] void leave_fiber(Fiber& from, Fiber& to);

/// Stacks of one block's threads, with a guard page below each, and what ThreadSanitizer knows of the fibers on them.
class Stacks {
 public:
  explicit Stacks(int count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  int count() const { return count_; }
  /// Makes `fiber` start at the entry, which never returns, on stack i.
  void prepare(int i, Fiber& fiber, const StackTop& top);

 private:
  int count_;
  void* mapped_;
  char* memory_;
  struct Sanitized {
    void* fiber = nullptr;
    int uses = 0;
  };
  std::vector<Sanitized> sanitized_;
};

/// Stacks are kept for the next launch: mapping them is slow.
std::unique_ptr<Stacks> take_stacks(int count);
void return_stacks(std::unique_ptr<Stacks> stacks) noexcept;

}  // namespace jitgemm::emulator
