#pragma once

#include <cuda.h>

#include <atomic>
#include <functional>
#include <string>

#include "jitgemm/error.hpp"

namespace jitgemm::cuda {

/// The driver's functions, found at run time, so that the library loads where there is no driver. Plain pointers: a
/// test puts functions of its own in.
struct DriverApi {
  decltype(&cuInit) init = nullptr;
  decltype(&cuDriverGetVersion) driver_get_version = nullptr;
  decltype(&cuGetErrorName) get_error_name = nullptr;
  decltype(&cuGetErrorString) get_error_string = nullptr;

  decltype(&cuDeviceGetCount) device_get_count = nullptr;
  decltype(&cuDeviceGet) device_get = nullptr;
  decltype(&cuDeviceGetName) device_get_name = nullptr;
  decltype(&cuDeviceGetAttribute) device_get_attribute = nullptr;
  decltype(&cuDeviceTotalMem) device_total_mem = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) device_primary_ctx_retain = nullptr;
  decltype(&cuDevicePrimaryCtxRelease) device_primary_ctx_release = nullptr;

  decltype(&cuCtxGetCurrent) ctx_get_current = nullptr;
  decltype(&cuCtxPushCurrent) ctx_push_current = nullptr;
  decltype(&cuCtxPopCurrent) ctx_pop_current = nullptr;
  decltype(&cuCtxGetDevice) ctx_get_device = nullptr;

  decltype(&cuModuleLoadData) module_load_data = nullptr;
  decltype(&cuModuleUnload) module_unload = nullptr;
  decltype(&cuModuleGetFunction) module_get_function = nullptr;
  decltype(&cuFuncSetAttribute) func_set_attribute = nullptr;
  decltype(&cuFuncGetAttribute) func_get_attribute = nullptr;
  decltype(&cuLaunchKernelEx) launch_kernel_ex = nullptr;
  decltype(&cuOccupancyMaxActiveClusters) occupancy_max_active_clusters = nullptr;
  decltype(&cuOccupancyMaxActiveBlocksPerMultiprocessor) occupancy_max_active_blocks = nullptr;
  decltype(&cuTensorMapEncodeTiled) tensor_map_encode_tiled = nullptr;

  decltype(&cuMemAlloc) mem_alloc = nullptr;
  decltype(&cuMemFree) mem_free = nullptr;
  decltype(&cuMemsetD8Async) memset_d8_async = nullptr;
  decltype(&cuMemcpyHtoDAsync) memcpy_htod_async = nullptr;
  decltype(&cuMemcpyDtoHAsync) memcpy_dtoh_async = nullptr;
  decltype(&cuMemcpyDtoDAsync) memcpy_dtod_async = nullptr;
  decltype(&cuMemcpy2DAsync) memcpy_2d_async = nullptr;
  decltype(&cuMemHostAlloc) mem_host_alloc = nullptr;
  decltype(&cuMemFreeHost) mem_free_host = nullptr;
  decltype(&cuIpcGetMemHandle) ipc_get_mem_handle = nullptr;
  decltype(&cuIpcOpenMemHandle) ipc_open_mem_handle = nullptr;
  decltype(&cuIpcCloseMemHandle) ipc_close_mem_handle = nullptr;
  decltype(&cuPointerGetAttributes) pointer_get_attributes = nullptr;
  decltype(&cuMemPoolGetAccess) mem_pool_get_access = nullptr;
  decltype(&cuMemGetAccess) mem_get_access = nullptr;

  decltype(&cuStreamCreate) stream_create = nullptr;
  decltype(&cuStreamDestroy) stream_destroy = nullptr;
  decltype(&cuStreamSynchronize) stream_synchronize = nullptr;
  decltype(&cuStreamQuery) stream_query = nullptr;
  CUresult (*stream_wait_event)(CUstream, CUevent, unsigned flags) = nullptr;
  decltype(&cuStreamGetId) stream_get_id = nullptr;
  decltype(&cuStreamIsCapturing) stream_is_capturing = nullptr;
  // The versions that know programmatic edges came with CUDA 12.3; null in older drivers.
  CUresult (*stream_get_capture_info_v2)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**,
                                         std::size_t*) = nullptr;
  CUresult (*stream_get_capture_info_v3)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**,
                                         const CUgraphEdgeData**, std::size_t*) = nullptr;
  CUresult (*graph_node_get_dependencies)(CUgraphNode, CUgraphNode*, std::size_t*) = nullptr;
  CUresult (*graph_node_get_dependencies_v2)(CUgraphNode, CUgraphNode*, CUgraphEdgeData*, std::size_t*) = nullptr;
  CUresult (*stream_begin_capture)(CUstream, CUstreamCaptureMode) = nullptr;
  decltype(&cuStreamEndCapture) stream_end_capture = nullptr;
  CUresult (*graph_instantiate)(CUgraphExec*, CUgraph, unsigned long long flags) = nullptr;
  decltype(&cuGraphLaunch) graph_launch = nullptr;
  decltype(&cuGraphDestroy) graph_destroy = nullptr;
  decltype(&cuGraphExecDestroy) graph_exec_destroy = nullptr;
  CUresult (*stream_update_capture_dependencies_v2)(CUstream, CUgraphNode*, const CUgraphEdgeData*, std::size_t,
                                                    unsigned) = nullptr;
  decltype(&cuGraphNodeGetType) graph_node_get_type = nullptr;
  CUresult (*graph_kernel_node_get_params)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS*) = nullptr;
  decltype(&cuUserObjectCreate) user_object_create = nullptr;
  decltype(&cuUserObjectRelease) user_object_release = nullptr;
  decltype(&cuGraphRetainUserObject) graph_retain_user_object = nullptr;
  decltype(&cuThreadExchangeStreamCaptureMode) thread_exchange_stream_capture_mode = nullptr;
  decltype(&cuEventCreate) event_create = nullptr;
  decltype(&cuEventDestroy) event_destroy = nullptr;
  decltype(&cuEventRecord) event_record = nullptr;
  decltype(&cuEventSynchronize) event_synchronize = nullptr;
  decltype(&cuEventQuery) event_query = nullptr;
  decltype(&cuEventElapsedTime) event_elapsed_time = nullptr;
};

/// Finds every function by the name that cuda.h gives its signature today, and calls cuInit. Throws Error{no_device}.
DriverApi bind_driver(const std::function<void*(const char* name)>& symbol);

/// The same from a library.
DriverApi load_driver(const std::string& library = "libcuda.so.1");

/// The process's driver, loaded on first need and never unloaded. Throws Error{no_device}.
const DriverApi& driver();

/// What driver() answers instead while it is not null, as in tests only.
extern std::atomic<const DriverApi*> driver_for_tests;

/// "cuX failed: CUDA_ERROR_Y (text)".
std::string failure_text(const DriverApi& api, CUresult result, const std::string& call);

/// An Error that remembers what the driver answered.
struct DriverError : Error {
  DriverError(CUresult answer, const Error& error) : Error(error), result(answer) {}
  CUresult result;
};

/// Whether the driver means that a stream is captured.
inline bool is_of_capture(CUresult result) {
  return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

/// failure_text() and the way out. Out of memory, stream capture and what ends a CUDA context have a code of their own
/// whatever `code` says, and the first and the last a way out.
DriverError driver_error(const DriverApi& api, CUresult result, ErrorCode code, const std::string& call,
                         const std::string& way_out);

inline void check(const DriverApi& api, CUresult result, ErrorCode code, const char* call, const char* way_out) {
  if (result != CUDA_SUCCESS) throw driver_error(api, result, code, call, way_out);
}

}  // namespace jitgemm::cuda
