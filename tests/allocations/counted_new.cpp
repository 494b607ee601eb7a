#include "allocations/counted_new.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace jitgemm::test {

thread_local long allocations = 0;

}  // namespace jitgemm::test

namespace {

void* counted(std::size_t bytes, std::size_t alignment) {
  ++jitgemm::test::allocations;
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), std::max<std::size_t>(bytes, 1)) != 0)
    throw std::bad_alloc();
  return memory;
}

}  // namespace

// All others of the standard library call these.
void* operator new(std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return counted(bytes, std::size_t(alignment)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
