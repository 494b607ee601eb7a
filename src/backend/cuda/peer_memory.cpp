// Memory of the node's other devices, of another process each, by CUDA's inter-process handles.
#include "backend/cuda/peer_memory.hpp"

#include <unistd.h>

#include <cstring>

#include "jitgemm/error.hpp"

namespace jitgemm::cuda {
namespace {

/// What a PeerHandle's bytes are.
struct Handle {
  std::int64_t process = 0;
  CUipcMemHandle memory = {};
};
static_assert(sizeof(Handle) <= sizeof(PeerHandle));

constexpr const char* without_access =
    "these devices do not reach each other's memory: use devices that NVLink or PCIe connects, in processes that share "
    "one IPC namespace, or Overlap::none";

}  // namespace

PeerHandle handle_of(const DeviceContext& own, void* memory) {
  Handle handle;
  handle.process = getpid();
  check(own.api, own.api.ipc_get_mem_handle(&handle.memory, CUdeviceptr(memory)), ErrorCode::no_device,
        "cuIpcGetMemHandle", without_access);
  PeerHandle result;
  std::memcpy(result.bytes.data(), &handle, sizeof handle);
  return result;
}

void* open_peer(const DeviceContext& own, const PeerHandle& opaque) {
  Handle handle;
  std::memcpy(&handle, opaque.bytes.data(), sizeof handle);
  if (handle.process == getpid()) {  // seen on two H200s: a gather hangs
    throw Error(ErrorCode::no_device,
                "ranks of one process would wait for each other's kernels in the driver; use a process a device, or "
                "Overlap::none");
  }
  CUdeviceptr address = 0;
  check(own.api, own.api.ipc_open_mem_handle(&address, handle.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        ErrorCode::no_device, "cuIpcOpenMemHandle", without_access);
  return reinterpret_cast<void*>(address);
}

void close_peer(const DeviceContext& own, void* memory) noexcept {
  own.attempt("cuIpcCloseMemHandle", [&] { return own.api.ipc_close_mem_handle(CUdeviceptr(memory)); });
}

}  // namespace jitgemm::cuda
