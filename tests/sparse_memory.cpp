#include "sparse_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

namespace jitgemm::test {

SparseMemory::SparseMemory(std::size_t bytes) : bytes_(bytes) {
  const auto page = std::size_t(sysconf(_SC_PAGESIZE));
  mapped_ = (bytes + guard_bytes + page - 1) / page * page + 2 * page;
  void* const mapping =
      mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<char*>(mapping);
  mprotect(mapping_, page, PROT_NONE);
  mprotect(mapping_ + mapped_ - page, page, PROT_NONE);
  memory_ = mapping_ + (mapped_ - page - guard_bytes - bytes) / 256 * 256;
}

SparseMemory::~SparseMemory() { munmap(mapping_, mapped_); }

}  // namespace jitgemm::test
