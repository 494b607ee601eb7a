#include "backend/cuda/driver_api.hpp"

#include <dlfcn.h>

namespace jitgemm::cuda {
namespace {

constexpr const char* without_device =
    "install the NVIDIA driver, or use the device emulator (\"cpu\" in Python) or compile_only";

using Symbol = std::function<void*(const char*)>;

template <typename Function>
void bind(const Symbol& symbol, Function& function, const char* name) {
  function = reinterpret_cast<Function>(symbol(name));
  if (!function) {
    throw Error(ErrorCode::no_device, std::string("the NVIDIA driver has no ") + name +
                                          ": it is older than CUDA 12.0; update the driver to 525 or newer");
  }
}

template <typename Function>
void bind_if_there(const Symbol& symbol, Function& function, const char* name) {
  function = reinterpret_cast<Function>(symbol(name));
}

/// Whether nothing works in a CUDA context after this answer: an earlier launch has gone wrong on the device.
bool ends_context(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::atomic<const DriverApi*> driver_for_tests = nullptr;

DriverApi load_driver(const std::string& library_name) {
  void* library = dlopen(library_name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Error(ErrorCode::no_device, std::string("no CUDA driver (") + dlerror() + "); " + without_device);
  return bind_driver([library](const char* name) { return dlsym(library, name); });
}

DriverApi bind_driver(const Symbol& library) {
  DriverApi api;
  bind(library, api.init, "cuInit");
  bind(library, api.driver_get_version, "cuDriverGetVersion");
  bind(library, api.get_error_name, "cuGetErrorName");
  bind(library, api.get_error_string, "cuGetErrorString");
  bind(library, api.device_get_count, "cuDeviceGetCount");
  bind(library, api.device_get, "cuDeviceGet");
  bind(library, api.device_get_name, "cuDeviceGetName");
  bind(library, api.device_get_attribute, "cuDeviceGetAttribute");
  bind(library, api.device_total_mem, "cuDeviceTotalMem_v2");
  bind(library, api.device_primary_ctx_retain, "cuDevicePrimaryCtxRetain");
  bind(library, api.device_primary_ctx_release, "cuDevicePrimaryCtxRelease_v2");
  bind(library, api.ctx_get_current, "cuCtxGetCurrent");
  bind(library, api.ctx_push_current, "cuCtxPushCurrent_v2");
  bind(library, api.ctx_pop_current, "cuCtxPopCurrent_v2");
  bind(library, api.ctx_get_device, "cuCtxGetDevice");
  bind(library, api.module_load_data, "cuModuleLoadData");
  bind(library, api.module_unload, "cuModuleUnload");
  bind(library, api.module_get_function, "cuModuleGetFunction");
  bind(library, api.func_set_attribute, "cuFuncSetAttribute");
  bind(library, api.func_get_attribute, "cuFuncGetAttribute");
  bind(library, api.launch_kernel_ex, "cuLaunchKernelEx");
  bind(library, api.occupancy_max_active_clusters, "cuOccupancyMaxActiveClusters");
  bind(library, api.occupancy_max_active_blocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  bind(library, api.tensor_map_encode_tiled, "cuTensorMapEncodeTiled");
  bind(library, api.mem_alloc, "cuMemAlloc_v2");
  bind(library, api.mem_free, "cuMemFree_v2");
  bind(library, api.memset_d8_async, "cuMemsetD8Async");
  bind(library, api.memcpy_htod_async, "cuMemcpyHtoDAsync_v2");
  bind(library, api.memcpy_dtoh_async, "cuMemcpyDtoHAsync_v2");
  bind(library, api.memcpy_dtod_async, "cuMemcpyDtoDAsync_v2");
  bind(library, api.memcpy_2d_async, "cuMemcpy2DAsync_v2");
  bind(library, api.mem_host_alloc, "cuMemHostAlloc");
  bind(library, api.mem_free_host, "cuMemFreeHost");
  bind(library, api.ipc_get_mem_handle, "cuIpcGetMemHandle");
  bind(library, api.ipc_open_mem_handle, "cuIpcOpenMemHandle_v2");
  bind(library, api.ipc_close_mem_handle, "cuIpcCloseMemHandle");
  bind(library, api.pointer_get_attributes, "cuPointerGetAttributes");
  bind(library, api.mem_pool_get_access, "cuMemPoolGetAccess");
  bind(library, api.mem_get_access, "cuMemGetAccess");
  bind(library, api.stream_create, "cuStreamCreate");
  bind(library, api.stream_destroy, "cuStreamDestroy_v2");
  bind(library, api.stream_synchronize, "cuStreamSynchronize");
  bind(library, api.stream_query, "cuStreamQuery");
  bind(library, api.stream_wait_event, "cuStreamWaitEvent");
  bind(library, api.stream_get_id, "cuStreamGetId");
  bind(library, api.stream_is_capturing, "cuStreamIsCapturing");
  bind(library, api.stream_get_capture_info_v2, "cuStreamGetCaptureInfo_v2");
  bind_if_there(library, api.stream_get_capture_info_v3, "cuStreamGetCaptureInfo_v3");
  bind(library, api.graph_node_get_dependencies, "cuGraphNodeGetDependencies");
  bind_if_there(library, api.graph_node_get_dependencies_v2, "cuGraphNodeGetDependencies_v2");
  bind(library, api.stream_begin_capture, "cuStreamBeginCapture_v2");
  bind(library, api.stream_end_capture, "cuStreamEndCapture");
  bind(library, api.graph_instantiate, "cuGraphInstantiateWithFlags");
  bind(library, api.graph_launch, "cuGraphLaunch");
  bind(library, api.graph_destroy, "cuGraphDestroy");
  bind(library, api.graph_exec_destroy, "cuGraphExecDestroy");
  bind_if_there(library, api.stream_update_capture_dependencies_v2, "cuStreamUpdateCaptureDependencies_v2");
  bind(library, api.graph_node_get_type, "cuGraphNodeGetType");
  bind(library, api.graph_kernel_node_get_params, "cuGraphKernelNodeGetParams_v2");
  bind(library, api.user_object_create, "cuUserObjectCreate");
  bind(library, api.user_object_release, "cuUserObjectRelease");
  bind(library, api.graph_retain_user_object, "cuGraphRetainUserObject");
  bind(library, api.thread_exchange_stream_capture_mode, "cuThreadExchangeStreamCaptureMode");
  bind(library, api.event_create, "cuEventCreate");
  bind(library, api.event_destroy, "cuEventDestroy_v2");
  bind(library, api.event_record, "cuEventRecord");
  bind(library, api.event_synchronize, "cuEventSynchronize");
  bind(library, api.event_query, "cuEventQuery");
  bind(library, api.event_elapsed_time, "cuEventElapsedTime");

  check(api, api.init(0), ErrorCode::no_device, "cuInit", without_device);
  return api;
}

const DriverApi& driver() {
  if (const DriverApi* const given = driver_for_tests.load(std::memory_order_acquire)) return *given;
  static const DriverApi& api = *new DriverApi(load_driver());  // outlives every static object that may still need it
  return api;
}

std::string failure_text(const DriverApi& api, CUresult result, const std::string& call) {
  const char *name = nullptr, *text = nullptr;
  if (api.get_error_name(result, &name) != CUDA_SUCCESS) name = nullptr;
  if (api.get_error_string(result, &text) != CUDA_SUCCESS) text = nullptr;
  return call + " failed: " + (name ? name : "CUDA error " + std::to_string(int(result))) +
         (text ? std::string(" (") + text + ")" : "");
}

DriverError driver_error(const DriverApi& api, CUresult result, ErrorCode code, const std::string& call,
                         const std::string& way_out) {
  std::string advice = way_out;
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    code = ErrorCode::out_of_memory;
    advice = "free device memory first";
  }
  if (ends_context(result)) {
    code = ErrorCode::launch_failed;
    advice = "an earlier kernel or copy has ended this CUDA context: run under compute-sanitizer to find it";
  }
  if (is_of_capture(result)) code = ErrorCode::not_capturable;
  return {result, Error(code, failure_text(api, result, call) + "; " + advice).with_call(call)};
}

}  // namespace jitgemm::cuda
