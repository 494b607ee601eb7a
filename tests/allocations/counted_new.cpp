#include "allocations/counted_new.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace jitgemm::test {

thread_local long allocations = 0;

namespace {

struct Fault {
  bool armed = false, and_later = false, failed = false;
  long number = 0;
};
thread_local Fault fault;

}  // namespace

FailingAllocation::FailingAllocation(long n, bool and_later) { fault = {true, and_later, false, allocations + n}; }
FailingAllocation::~FailingAllocation() { fault.armed = false; }
bool FailingAllocation::failed() { return fault.failed; }

namespace {

void fail_if_asked() {
  if (!fault.armed || allocations < fault.number || (allocations > fault.number && !fault.and_later)) return;
  fault.failed = true;
  ++allocations;
  throw std::bad_alloc();
}

}  // namespace
}  // namespace jitgemm::test

namespace {

void* counted(std::size_t bytes, std::size_t alignment) {
  jitgemm::test::fail_if_asked();
  ++jitgemm::test::allocations;
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), std::max<std::size_t>(bytes, 1)) != 0)
    throw std::bad_alloc();
  return memory;
}

}  // namespace

// All others of the standard library call these, but where a sanitizer has its own.
void* operator new(std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return counted(bytes, std::size_t(alignment)); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return counted(bytes, alignof(std::max_align_t));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
