// Memory of the node's other devices: of another process by CUDA's inter-process handles, of this one as it is, once
// peer access is enabled.
#include "backend/cuda/peer_memory.hpp"

#include <unistd.h>

#include <cstring>
#include <mutex>
#include <set>

#include "jitgemm/error.hpp"

namespace jitgemm::cuda {
namespace {

/// What a PeerHandle's bytes are.
struct Handle {
  std::int64_t process = 0;
  CUdeviceptr address = 0;
  CUcontext context = nullptr;  // of the process
  CUipcMemHandle memory = {};
};
static_assert(sizeof(Handle) <= sizeof(PeerHandle));

constexpr const char* without_access =
    "these devices do not reach each other's memory: use devices that NVLink or PCIe connects, in processes that share "
    "one IPC namespace, or Overlap::none";

/// What this process has opened, and so must close: all else is memory of its own.
struct Opened {
  std::mutex mutex;
  std::multiset<CUdeviceptr> addresses;
};
Opened& opened() {
  static Opened& instance = *new Opened;  // never destroyed: memory may be closed while the process ends
  return instance;
}

}  // namespace

PeerHandle handle_of(const DeviceContext& own, void* memory) {
  Handle handle{.process = getpid(), .address = CUdeviceptr(memory), .context = own.context};
  check(own.api, own.api.ipc_get_mem_handle(&handle.memory, handle.address), ErrorCode::no_device, "cuIpcGetMemHandle",
        without_access);
  PeerHandle result;
  std::memcpy(result.bytes.data(), &handle, sizeof handle);
  return result;
}

void* open_peer(const DeviceContext& own, const PeerHandle& opaque) {
  Handle handle;
  std::memcpy(&handle, opaque.bytes.data(), sizeof handle);
  if (handle.process == getpid()) {
    if (handle.context == own.context) return reinterpret_cast<void*>(handle.address);
    const CUresult result = own.api.ctx_enable_peer_access(handle.context, 0);
    if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
      check(own.api, result, ErrorCode::no_device, "cuCtxEnablePeerAccess", without_access);
    return reinterpret_cast<void*>(handle.address);
  }
  CUdeviceptr address = 0;
  check(own.api, own.api.ipc_open_mem_handle(&address, handle.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        ErrorCode::no_device, "cuIpcOpenMemHandle", without_access);
  const std::lock_guard lock(opened().mutex);
  opened().addresses.insert(address);
  return reinterpret_cast<void*>(address);
}

void close_peer(const DeviceContext& own, void* memory) noexcept {
  const auto address = CUdeviceptr(memory);
  {
    const std::lock_guard lock(opened().mutex);
    const auto found = opened().addresses.find(address);
    if (found == opened().addresses.end()) return;
    opened().addresses.erase(found);
  }
  own.attempt("cuIpcCloseMemHandle", [&] { return own.api.ipc_close_mem_handle(address); });
}

}  // namespace jitgemm::cuda
