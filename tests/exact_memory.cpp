#include "exact_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

namespace jitgemm::test {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool with_asan = true;
#else
constexpr bool with_asan = false;
#endif

}  // namespace

Memory allocate_exactly(std::size_t bytes, std::size_t alignment) {
  if (with_asan) {
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment, bytes ? bytes : 1) != 0) throw std::bad_alloc();
    return {static_cast<char*>(memory), [](char* data) { std::free(data); }};
  }
  const auto page = std::size_t(sysconf(_SC_PAGESIZE));
  const std::size_t mapped = (bytes + page - 1) / page * page + 2 * page;  // a protected one on either side
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  char* mapping = static_cast<char*>(memory);
  mprotect(mapping, page, PROT_NONE);
  mprotect(mapping + mapped - page, page, PROT_NONE);
  return {mapping + (mapped - page - bytes) / alignment * alignment, [=](char*) { munmap(mapping, mapped); }};
}

}  // namespace jitgemm::test
