#include "soak/memory.hpp"

#include <cuda.h>
#include <dlfcn.h>
#include <malloc.h>
#include <unistd.h>

#include <fstream>

#include "backend/cuda/driver_api.hpp"
#include "jitgemm/error.hpp"

namespace jitgemm::cli {
namespace {

std::size_t device_bytes(bool emulated) {
  if (emulated) {
    const auto heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
  }
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  using GetInfo = CUresult (*)(std::size_t*, std::size_t*);
  static const auto get_info = library ? reinterpret_cast<GetInfo>(dlsym(library, "cuMemGetInfo_v2")) : nullptr;
  if (!get_info) throw Error(ErrorCode::no_device, "the CUDA driver has no cuMemGetInfo: update it");
  std::size_t free = 0, total = 0;
  cuda::check(cuda::driver(), get_info(&free, &total), ErrorCode::launch_failed, "cuMemGetInfo", "check nvidia-smi");
  return total - free;
}

std::size_t resident_bytes() {
  std::size_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * std::size_t(sysconf(_SC_PAGESIZE));
}

}  // namespace

MemoryInUse memory_in_use(bool emulated) { return {device_bytes(emulated), resident_bytes()}; }

}  // namespace jitgemm::cli
