#include "backend/cuda/pointer_reach.hpp"

#include <array>

namespace jitgemm::cuda {
namespace {

constexpr const char* way_out = "pass memory that this device can read and write";

void must(const DriverApi& api, CUresult result, const char* call) {
  check(api, result, ErrorCode::invalid_operand, call, way_out);
}

struct Pointer {
  unsigned memory_type = 0, managed = 0;
  int ordinal = -1;
  CUdeviceptr seen_at = 0;  // by kernels of the current context; 0 if it is not
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
};

Pointer ask(const DriverApi& api, CUdeviceptr address) {
  Pointer pointer;
  std::array attributes = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
                           CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                           CU_POINTER_ATTRIBUTE_CONTEXT,        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
  std::array<void*, 6> values = {&pointer.memory_type, &pointer.managed, &pointer.ordinal,
                                 &pointer.seen_at,     &pointer.context, &pointer.pool};
  must(api, api.pointer_get_attributes(unsigned(attributes.size()), attributes.data(), values.data(), address),
       "cuPointerGetAttributes");
  return pointer;
}

/// Another device's memory. Its kind says who knows: of cuMemAlloc's, where it is seen; of a pool's and of mapped
/// memory, which are seen wherever one asks, the access that was set. CU_POINTER_ATTRIBUTE_ACCESS_FLAGS does not: of a
/// second H200's memory it allows all before cuCtxEnablePeerAccess, and the read that follows ends the CUDA context
/// (driver 580).
bool peer_access(const DeviceContext& own, const Pointer& pointer, CUdeviceptr address) {
  if (pointer.seen_at != address) return false;
  if (pointer.context) return true;
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = own.device;
  if (pointer.pool) {
    CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    must(own.api, own.api.mem_pool_get_access(&access, pointer.pool, &location), "cuMemPoolGetAccess");
    return access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  unsigned long long access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  must(own.api, own.api.mem_get_access(&access, &location, address), "cuMemGetAccess");
  return access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

}  // namespace

Reach reach_of(const DeviceContext& own, const void* memory) {
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  const Pointer pointer = ask(own.api, address);
  if (pointer.managed) return Reach::ours;  // moves to where it is used
  if (pointer.memory_type == CU_MEMORYTYPE_HOST)
    return pointer.seen_at == address ? Reach::ours : Reach::host_elsewhere;
  if (pointer.memory_type != CU_MEMORYTYPE_DEVICE) return Reach::unknown;
  CUdevice owner = 0;
  must(own.api, own.api.device_get(&owner, pointer.ordinal), "cuDeviceGet");
  return owner == own.device || peer_access(own, pointer, address) ? Reach::ours : Reach::other_device;
}

const char* text_of(Reach reach) {
  switch (reach) {
    case Reach::ours:
      break;
    case Reach::host_elsewhere:
      return " points to page-locked memory that this device does not see at that address; pass what "
             "cuMemHostGetDevicePointer "
             "answers, or memory of the device";
    case Reach::other_device:
      return " is memory of another device than this Context's, which cannot reach it; enable peer access "
             "(cuCtxEnablePeerAccess, "
             "cuMemPoolSetAccess, cuMemSetAccess), or make a Context with that device's number in cuda_device";
    case Reach::unknown:
      return " points to host memory; copy it to memory of the device first";
  }
  throw Error(ErrorCode::internal, "a reach without a text");
}

}  // namespace jitgemm::cuda
