#pragma once

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "backend/cuda/driver_api.hpp"
#include "fake_graphs.hpp"

namespace jitgemm::test {

/// A CUDA driver of two devices without a GPU, that keeps books: what is alive, which context and capture mode each
/// call found. Any call can be made to fail. Thread-safe, but for reset().
struct FakeDriver {
  static inline thread_local CUcontext current = nullptr;
  static inline thread_local std::vector<CUcontext> stack;
  static inline thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  static inline std::mutex mutex;             // of the books
  static inline std::set<const void*> alive;  // memory, modules, streams, events
  static inline int retained = 0;
  static inline std::multiset<CUdevice> retained_of;
  static inline std::atomic<int> calls = 0;
  static inline int failing_call = 0;  // the number of the call that fails; 0: none
  static inline CUresult failure = CUDA_ERROR_UNKNOWN;
  static inline bool shut_down = false;
  static inline std::atomic<bool> busy = false;              // what asks whether work has ended hears that it has not
  static inline std::set<CUcontext> contexts_seen;           // by calls that work in the current one
  static inline std::set<CUstreamCaptureMode> unsafe_modes;  // by calls that only the relaxed mode allows
  static inline unsigned memory_type = CU_MEMORYTYPE_DEVICE, managed = 0;
  static inline int pointer_device = 0;
  static inline bool pointer_seen = true;  // by this device, at the same address
  enum class Made { by_allocation, from_pool, by_mapping };
  static inline Made pointer_made = Made::by_allocation;
  static inline CUmemAccess_flags pointer_access =
      CU_MEM_ACCESS_FLAGS_PROT_NONE;  // of this device to what a pool or a mapping gave
  static inline std::vector<std::string> log;
  /// Of clusters that the device, or a stream's part of it, can hold, and of shared memory of a block.
  static inline unsigned most_clustered = 8;
  static inline unsigned clustered_sms = 120;  // that clusters of any size share
  static inline std::map<CUstream, unsigned> most_clustered_on;
  static inline std::size_t most_smem_bytes = 227 << 10;

  static inline std::uintptr_t next_handle = 0x100000;

  static CUcontext context(int i) { return reinterpret_cast<CUcontext>(std::uintptr_t(0x1000 + i)); }
  static constexpr CUdevice first_device = 10;
  static CUcontext primary(CUdevice device = first_device) { return context(100 * (device - first_device)); }

  static void reset() {
    current = nullptr;
    stack.clear();
    capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    alive.clear();
    calls = 0;
    retained = failing_call = 0;
    retained_of.clear();
    failure = CUDA_ERROR_UNKNOWN;
    shut_down = busy = false;
    contexts_seen.clear();
    unsafe_modes.clear();
    memory_type = CU_MEMORYTYPE_DEVICE;
    managed = 0;
    pointer_device = 0;
    pointer_seen = true;
    pointer_made = Made::by_allocation;
    pointer_access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    FakeGraphs::reset();
    log.clear();
    most_clustered = 8;
    clustered_sms = 120;
    most_clustered_on.clear();
    most_smem_bytes = 227 << 10;
  }

  static unsigned largest_cluster(CUstream stream) {
    const auto found = most_clustered_on.find(stream);
    return found == most_clustered_on.end() ? most_clustered : found->second;
  }

  static CUresult step() {
    if (shut_down) return CUDA_ERROR_DEINITIALIZED;
    return ++calls == failing_call ? failure : CUDA_SUCCESS;
  }
  static CUresult work() {
    {
      const std::lock_guard lock(mutex);
      contexts_seen.insert(current);
    }
    return step();
  }
  static CUresult unsafe_work() {
    {
      const std::lock_guard lock(mutex);
      unsafe_modes.insert(capture_mode);
    }
    return work();
  }

  template <typename Handle>
  static CUresult make(Handle* handle) {
    if (const CUresult result = unsafe_work(); result != CUDA_SUCCESS) return result;
    const std::lock_guard lock(mutex);
    const auto* const made = reinterpret_cast<const void*>(next_handle += 256);
    alive.insert(made);
    std::memcpy(handle, &made, sizeof made);
    return CUDA_SUCCESS;
  }
  template <typename Handle>
  static CUresult destroy(Handle handle) {
    if (shut_down) return CUDA_ERROR_DEINITIALIZED;  // never fails otherwise, so that nothing is left over
    const std::lock_guard lock(mutex);
    contexts_seen.insert(current);
    const void* made = nullptr;
    std::memcpy(&made, &handle, sizeof made);
    return alive.erase(made) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }

  static void note(std::string line) {
    const std::lock_guard lock(mutex);
    log.push_back(std::move(line));
  }

  static CUresult answer(unsigned type, unsigned count, CUpointer_attribute* attributes, void** values,
                         CUdeviceptr pointer) {
    const auto put = [](auto value, void* to) { std::memcpy(to, &value, sizeof(decltype(value))); };
    for (unsigned i = 0; i < count; ++i) {
      switch (attributes[i]) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
          put(type, values[i]);
          break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
          put(managed, values[i]);
          break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
          put(pointer_device, values[i]);
          break;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
          put(pointer_seen ? pointer : 0, values[i]);
          break;
        case CU_POINTER_ATTRIBUTE_CONTEXT:
          put(pointer_made == Made::by_allocation ? primary() : nullptr, values[i]);
          break;
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
          put(pointer_made == Made::from_pool ? reinterpret_cast<CUmemoryPool>(primary()) : nullptr, values[i]);
          break;
        default:
          return CUDA_ERROR_INVALID_VALUE;
      }
    }
    return work();
  }

  static cuda::DriverApi api() {
    cuda::DriverApi api;
    api.init = [](unsigned) { return step(); };
    api.driver_get_version = [](int* version) { return *version = 12040, CUDA_SUCCESS; };
    api.get_error_name = [](CUresult result, const char** name) {
      *name = result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
      return CUDA_SUCCESS;
    };
    api.get_error_string = [](CUresult, const char** text) { return *text = "made to fail", CUDA_SUCCESS; };
    api.device_get_count = [](int* count) { return *count = 2, step(); };
    api.device_get = [](CUdevice* device, int ordinal) { return *device = first_device + ordinal, step(); };
    api.device_get_name = [](char* name, int, CUdevice) { return std::strcpy(name, "Fake"), step(); };
    api.device_get_attribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
      *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? 9
               : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
                                                                           : 132;
      return step();
    };
    api.device_total_mem = [](std::size_t* bytes, CUdevice) { return *bytes = 1 << 30, step(); };
    api.device_primary_ctx_retain = [](CUcontext* context, CUdevice device) {
      if (const CUresult result = step(); result != CUDA_SUCCESS) return result;
      ++retained;
      retained_of.insert(device);
      return *context = primary(device), CUDA_SUCCESS;
    };
    api.device_primary_ctx_release = [](CUdevice device) {
      const auto found = retained_of.find(device);
      if (found == retained_of.end()) return CUDA_ERROR_INVALID_CONTEXT;
      retained_of.erase(found);
      return --retained, CUDA_SUCCESS;
    };
    api.ctx_get_current = [](CUcontext* context) {
      *context = current;
      return step();
    };
    api.ctx_push_current = [](CUcontext context) {
      if (const CUresult result = step(); result != CUDA_SUCCESS) return result;
      stack.push_back(current);
      current = context;
      return CUDA_SUCCESS;
    };
    api.ctx_pop_current = [](CUcontext* context) {
      *context = current;
      current = stack.back();
      stack.pop_back();
      return CUDA_SUCCESS;
    };
    api.ctx_get_device = [](CUdevice* device) { return *device = first_device, step(); };
    api.module_load_data = [](CUmodule* module, const void*) { return make(module); };
    api.module_unload = [](CUmodule module) { return destroy(module); };
    api.module_get_function = [](CUfunction* function, CUmodule, const char* name) {
      note(std::string("function ") + name);
      *function = reinterpret_cast<CUfunction>(std::uintptr_t(0x77));
      return work();
    };
    api.func_set_attribute = [](CUfunction, CUfunction_attribute attribute, int value) {
      note("attribute " + std::to_string(int(attribute)) + " = " + std::to_string(value));
      return work();
    };
    api.func_get_attribute = [](int* value, CUfunction_attribute, CUfunction) { return *value = 42, work(); };
    api.launch_kernel_ex = [](const CUlaunchConfig* config, CUfunction function, void**, void**) {
      if (const CUresult result = work(); result != CUDA_SUCCESS) return result;
      FakeGraphs::take(config->hStream, [] { return CUDA_SUCCESS; }, config, function);
      note("launch " + std::to_string(config->gridDimX) + " x " + std::to_string(config->blockDimX) + ", " +
           std::to_string(config->sharedMemBytes) + " bytes");
      return CUDA_SUCCESS;
    };
    api.occupancy_max_active_clusters = [](int* count, CUfunction, const CUlaunchConfig* config) {
      unsigned size = 1;
      for (unsigned i = 0; i < config->numAttrs; ++i)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) size = config->attrs[i].value.clusterDim.x;
      note("clusters of " + std::to_string(size));
      *count = largest_cluster(config->hStream) >= size ? int(clustered_sms / size) : 0;
      return work();
    };
    api.occupancy_max_active_blocks = [](int* count, CUfunction, int, std::size_t smem_bytes) {
      return *count = smem_bytes <= most_smem_bytes, work();
    };
    api.tensor_map_encode_tiled = [](CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void*,
                                     const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                     const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                     CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
      std::memset(map, 0x5a, sizeof *map);
      note("map type " + std::to_string(int(type)) + " rank " + std::to_string(rank) + " sizes " +
           std::to_string(sizes[0]) + " " + std::to_string(sizes[1]) + " " + std::to_string(sizes[2]) + " strides " +
           std::to_string(strides[0]) + " " + std::to_string(strides[1]) + " box " + std::to_string(box[0]) + " " +
           std::to_string(box[1]) + " " + std::to_string(box[2]) + " swizzle " + std::to_string(int(swizzle)) +
           " fill " + std::to_string(int(fill)));
      return step();
    };
    api.mem_alloc = [](CUdeviceptr* memory, std::size_t) { return make(memory); };
    api.mem_free = [](CUdeviceptr memory) { return destroy(memory); };
    api.memset_d8_async = [](CUdeviceptr, unsigned char, std::size_t, CUstream) { return unsafe_work(); };
    api.memcpy_htod_async = [](CUdeviceptr, const void*, std::size_t, CUstream) { return unsafe_work(); };
    api.memcpy_dtoh_async = [](void*, CUdeviceptr, std::size_t, CUstream) { return unsafe_work(); };
    api.memcpy_dtod_async = [](CUdeviceptr, CUdeviceptr, std::size_t bytes, CUstream) {
      note("copy " + std::to_string(bytes));
      return unsafe_work();
    };
    api.memcpy_2d_async = [](const CUDA_MEMCPY2D* copy, CUstream) {
      note("copy " + std::to_string(copy->Height) + " rows of " + std::to_string(copy->WidthInBytes) + " from " +
           std::to_string(copy->srcPitch) + " to " + std::to_string(copy->dstPitch) + " apart");
      return work();
    };
    api.mem_host_alloc = [](void** memory, std::size_t bytes, unsigned) {
      if (const CUresult result = unsafe_work(); result != CUDA_SUCCESS) return result;
      *memory = std::calloc(1, bytes);
      const std::lock_guard guard(mutex);
      alive.insert(*memory);
      return CUDA_SUCCESS;
    };
    api.mem_free_host = [](void* memory) {
      {
        const std::lock_guard guard(mutex);
        alive.erase(memory);
      }
      std::free(memory);
      return unsafe_work();
    };
    api.ipc_get_mem_handle = [](CUipcMemHandle*, CUdeviceptr) { return unsafe_work(); };
    api.ipc_open_mem_handle = [](CUdeviceptr* memory, CUipcMemHandle, unsigned) { return make(memory); };
    api.ipc_close_mem_handle = [](CUdeviceptr memory) { return destroy(memory); };
    api.pointer_get_attributes = [](unsigned count, CUpointer_attribute* attributes, void** values,
                                    CUdeviceptr pointer) {
      return answer(memory_type, count, attributes, values, pointer);
    };
    api.mem_pool_get_access = [](CUmemAccess_flags* access, CUmemoryPool, CUmemLocation* location) {
      if (pointer_made != Made::from_pool || location->id != 10) return CUDA_ERROR_INVALID_VALUE;
      return *access = pointer_access, work();
    };
    api.mem_get_access = [](unsigned long long* access, const CUmemLocation* location, CUdeviceptr) {
      if (location->id != 10) return CUDA_ERROR_INVALID_VALUE;
      return *access = pointer_made == Made::by_mapping ? pointer_access : 0, work();
    };
    api.stream_create = [](CUstream* stream, unsigned) { return make(stream); };
    api.stream_destroy = [](CUstream stream) { return destroy(stream); };
    api.stream_synchronize = [](CUstream) { return unsafe_work(); };
    api.stream_query = [](CUstream) {
      const CUresult result = unsafe_work();
      return result == CUDA_SUCCESS && busy ? CUDA_ERROR_NOT_READY : result;
    };
    api.stream_wait_event = [](CUstream, CUevent, unsigned) { return work(); };
    api.stream_get_id = [](CUstream stream, unsigned long long* id) {
      *id = reinterpret_cast<std::uintptr_t>(stream) + 1;
      return work();
    };
    api.stream_is_capturing = [](CUstream stream, CUstreamCaptureStatus* status) {
      *status = FakeGraphs::captures_on(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
      return work();
    };
    FakeGraphs::add_to(api);
    api.thread_exchange_stream_capture_mode = [](CUstreamCaptureMode* mode) {
      std::swap(*mode, capture_mode);
      return CUDA_SUCCESS;
    };
    api.event_create = [](CUevent* event, unsigned) { return make(event); };
    api.event_destroy = [](CUevent event) { return destroy(event); };
    api.event_record = [](CUevent, CUstream) { return work(); };
    api.event_synchronize = [](CUevent) { return unsafe_work(); };
    api.event_query = [](CUevent) {
      const CUresult result = unsafe_work();
      return result == CUDA_SUCCESS && busy ? CUDA_ERROR_NOT_READY : result;
    };
    api.event_elapsed_time = [](float* milliseconds, CUevent, CUevent) { return *milliseconds = 0.25f, work(); };
    return api;
  }
};

}  // namespace jitgemm::test
